// Style of the inspector, in its shadow root. Colours follow the page's `color-scheme`; an
// application can override the custom properties.
export const STYLE = `
:host { display: block; }
* { box-sizing: border-box; }
[hidden] { display: none !important; }
.inspector {
  --ink: var(--mangrove-ink, light-dark(#1a2320, #e3ebe7));
  --soft: var(--mangrove-soft, light-dark(#56645e, #9fb0a8));
  --line: var(--mangrove-line, light-dark(#dde4e0, #2b3632));
  --card: var(--mangrove-card, light-dark(#ffffff, #141b18));
  --tint: var(--mangrove-tint, light-dark(#eef4f1, #1c2723));
  --accent: var(--mangrove-accent, light-dark(#0a6c50, #5dd3aa));
  --danger: var(--mangrove-danger, light-dark(#b3261e, #ff9a91));
  --mono: var(--mangrove-mono, ui-monospace, SFMono-Regular, Menlo, Consolas, monospace);
  color: var(--ink); font: 14px/1.5 var(--mangrove-font, system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif);
  font-variant-numeric: tabular-nums; display: grid; gap: 14px; grid-template-columns: minmax(0, 1fr);
}
h2, p, dl, dd, ul { margin: 0; padding: 0; }
ul { list-style: none; }
.soft { color: var(--soft); }
.small { font-size: 12.5px; }
.problem { color: var(--danger); overflow-wrap: anywhere; }
.problem:empty, p:empty { display: none; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
p.unseen:empty { display: block; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }

.top { display: flex; gap: 12px; align-items: center; justify-content: space-between; }
.head { color: var(--soft); overflow-wrap: anywhere; }
button, input, select { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 5px 10px; min-height: 34px; }
button { cursor: pointer; }
button:hover:not(:disabled), input:hover, select:hover { border-color: var(--accent); }
button:disabled { color: var(--soft); cursor: default; opacity: .6; }
input[type="text"], input[type="number"] { width: 100%; min-width: 0; }
input[type="checkbox"] { min-height: 0; width: 16px; height: 16px; margin: 0; accent-color: var(--accent); }
input[type="file"] { width: 100%; padding: 4px; color: var(--soft); }
::file-selector-button { font: inherit; color: var(--ink); background: var(--tint); border: 1px solid var(--line); border-radius: 4px; padding: 2px 8px; margin-right: 10px; cursor: pointer; }
::placeholder { color: var(--soft); opacity: 1; }
.quiet { flex: none; }
label { display: grid; gap: 4px; min-width: 0; }
label > span { color: var(--soft); font-size: 12.5px; }
.check { display: flex; align-items: center; gap: 8px; min-height: 34px; }
.inline { display: flex; align-items: center; gap: 10px; justify-self: start; }

.tabs { display: flex; gap: 2px; border-bottom: 1px solid var(--line); overflow-x: auto; scrollbar-width: none; }
.tabs button { border: 0; border-bottom: 2px solid transparent; border-radius: 0; background: none; padding: 8px 12px; color: var(--soft); flex: none; }
.tabs button:focus-visible { outline-offset: -2px; }
.tabs button:hover { color: var(--ink); }
.tabs button[aria-selected="true"] { color: var(--ink); border-color: var(--accent); font-weight: 600; }

.main { display: grid; gap: 20px; grid-template-columns: minmax(0, 1fr); }
.main:has(> .sidebar:not([hidden])) { grid-template-columns: 210px minmax(0, 1fr); }
.sidebar { display: grid; gap: 8px; align-content: start; }
.collections { display: grid; gap: 2px; }
.collections button { width: 100%; display: grid; text-align: left; border-color: transparent; background: none; padding: 6px 10px; }
.collections button:hover { background: var(--tint); }
.collections button[aria-pressed="true"] { background: var(--tint); box-shadow: inset 2px 0 var(--accent); }
.collections .name { font-weight: 550; overflow-wrap: anywhere; }

.view { display: grid; gap: 14px; grid-template-columns: minmax(0, 1fr); align-content: start; }
.tools { display: grid; gap: 10px; grid-template-columns: repeat(3, minmax(0, 1fr)) auto; align-items: end; }
.scroll { overflow: auto; border: 1px solid var(--line); border-radius: 8px; background: var(--card); }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; font-weight: 400; padding: 6px 12px; border-bottom: 1px solid var(--line); vertical-align: top; }
tbody tr:last-child > * { border-bottom: 0; }
thead th { color: var(--soft); font-size: 12.5px; position: sticky; top: 0; background: var(--card); z-index: 1; }
.entries { table-layout: fixed; }
.entries th.key { width: 38%; padding: 0; }
.entries thead th.key { padding: 6px 12px 6px 30px; }
.entries code, .row-button, .tree, .hex { font: 12.5px/1.6 var(--mono); }
.value-cell code { display: block; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; padding-top: 2px; }
.index-key { width: 26%; overflow-wrap: anywhere; }
.row-button { width: 100%; text-align: left; border: 0; border-radius: 0; background: none; display: flex; gap: 8px; padding: 7px 12px; overflow-wrap: anywhere; }
.row-button:hover { background: var(--tint); }
.row-button:focus-visible { outline-offset: -2px; }
.marker { flex: none; width: 10px; }
.marker::before { content: '▸'; color: var(--soft); }
[aria-expanded="true"] .marker::before { content: '▾'; }
.note { color: var(--soft); padding: 24px 12px; text-align: center; }
.entries-scroll { max-height: 70vh; }
.pager { display: flex; gap: 10px; align-items: center; justify-content: space-between; flex-wrap: wrap; }
.position { display: flex; align-items: center; gap: 8px; margin-left: auto; }
.position input { width: 7.5em; }
.pager > span { margin-right: auto; }

.tree ul { padding-left: 18px; border-left: 1px solid var(--line); margin-left: 4px; }
.tree summary { cursor: pointer; border-radius: 4px; }
.tree li { overflow-wrap: anywhere; }
.tree .name { color: var(--soft); }
.tree .name::after { content: ': '; white-space: pre; }
.value.string { color: light-dark(#0a6c50, #7fd8b5); }
.value.number, .value.bigint { color: light-dark(#1c56b8, #8fbcff); }
.value.boolean, .value.date { color: light-dark(#8a3ea8, #dba6f2); }
.value.null, .value.object { color: var(--soft); }
.link { border: 0; background: none; color: var(--accent); padding: 0; min-height: 24px; text-decoration: underline; }
.hex { margin: 4px 0; padding: 8px 10px; background: var(--tint); border-radius: 6px; overflow-x: auto; }

.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 10px 20px; }
.figures dt { color: var(--soft); font-size: 12.5px; }
.figures dd { font-weight: 550; overflow-wrap: anywhere; }
.numbers { font-size: 13.5px; }
.numbers td, .numbers thead th:not(:first-child) { text-align: right; white-space: nowrap; }
.numbers tbody th { white-space: nowrap; }
.meaning { margin-left: 10px; white-space: normal; }
.indexes tbody th { white-space: normal; }
.indexes .link { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.indexes .link[aria-pressed="true"] { font-weight: 600; text-decoration: none; }
.indexes progress { display: block; margin-top: 4px; }
.picture { display: block; max-width: 100%; height: auto; justify-self: center; }
.picture .fan { fill: var(--tint); }
.picture .node { fill: var(--card); stroke: var(--line); }
.picture .full.leaf { fill: var(--leaf); }
.picture .full.inner { fill: var(--inner); }
.picture .label { fill: var(--ink); font-size: 13.5px; }

.inspector {
  --leaf: light-dark(#2c8a68, #46b58c); --inner: light-dark(#2f6fd0, #6fa3f5); --value: light-dark(#8457c9, #ab87ec); --index: light-dark(#0f7f93, #41b6cb); --internal: light-dark(#9b4a3c, #d98b7b);
  --system: light-dark(#4a5560, #8c9aa8); --kept: light-dark(#b7791f, #d9a548); --free: light-dark(#dfe6e2, #2a3430); --pending: light-dark(#c0397b, #ee7fb3);
}
.map { line-height: 0; }
.map canvas { display: block; border-radius: 3px; cursor: crosshair; touch-action: pan-y; }
.place { min-height: 1.5em; }
.swatch { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 9px; }
.kind-leaf { background: var(--leaf); } .kind-inner { background: var(--inner); } .kind-value { background: var(--value); } .kind-index { background: var(--index); } .kind-internal { background: var(--internal); }
.kind-superblock, .kind-catalog, .kind-free-map { background: var(--system); } .kind-kept { background: var(--kept); }
.kind-free { background: var(--free); } .kind-pending { background: var(--pending); }

.cards { grid-template-columns: repeat(auto-fit, minmax(min(270px, 100%), 1fr)); align-items: start; align-content: start; }
.card { border: 1px solid var(--line); border-radius: 8px; background: var(--card); padding: 16px; display: grid; gap: 12px; align-content: start; grid-template-columns: minmax(0, 1fr); }
.card h2 { font-size: 14px; font-weight: 600; }
.card .figures { grid-template-columns: minmax(0, 1fr); gap: 4px; }
.card .figures div { display: flex; justify-content: space-between; gap: 16px; }
.card .figures dt { font-size: 14px; }
.card .figures dd { text-align: right; }
.bar { display: flex; height: 8px; border-radius: 4px; overflow: hidden; background: var(--free); }
.part-used, .part-clean { background: var(--leaf); } .part-kept, .part-dirty { background: var(--kept); }
.running { display: grid; grid-template-columns: minmax(0, 1fr) auto auto; gap: 10px; align-items: center; }
.outcome:empty { display: none; }
.outcome ul { list-style: disc; padding-left: 18px; }
progress { width: 100%; height: 8px; appearance: none; border: 0; border-radius: 4px; overflow: hidden; background: var(--free); }
progress::-webkit-progress-bar { background: var(--free); }
progress::-webkit-progress-value { background: var(--accent); transition: width .15s; }
progress::-moz-progress-bar { background: var(--accent); }
progress:indeterminate { animation: breathe 1.2s ease-in-out infinite alternate; }
@keyframes breathe { from { background: var(--free); } to { background: var(--accent); } }

@media (max-width: 760px) {
  .main:has(> .sidebar:not([hidden])) { grid-template-columns: minmax(0, 1fr); }
  .collections { display: flex; overflow-x: auto; gap: 6px; padding-bottom: 4px; }
  .collections button { border: 1px solid var(--line); white-space: nowrap; }
  .collections .name { overflow-wrap: normal; }
  .tools { grid-template-columns: 1fr 1fr; }
  .entries th.key { width: 44%; }
  .meaning { display: none; }
  .pager { display: grid; grid-template-columns: auto 1fr auto; }
  .pager > * { grid-row: 2; }
  .pager .position { grid-area: 1 / 1 / auto / 3; margin: 0; }
  .pager > span { grid-area: 1 / 3; margin: 0; align-self: center; }
  .pager button:last-child { grid-column: 3; justify-self: end; }
  .tabs button { padding: 8px 10px; }
  th, td { padding: 6px 9px; }
}
@media (prefers-reduced-motion: reduce) { *, *::before, *::after { animation: none !important; transition: none !important; } }
@media (pointer: coarse) { button, input:not([type="checkbox"]), select { min-height: 40px; } }
`;
