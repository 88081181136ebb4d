//! Proves that the engine's modules import one way: each imports only those before it in `LAYERS`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Modules in order; each uses only those before it.
const LAYERS: [&str; 19] = [
    "trace",
    "locks",
    "clock",
    "error",
    "range",
    "small_map",
    "cipher",
    "storage",
    "block",
    "node",
    "log",
    "pages",
    "tree",
    "memtable",
    "state",
    "snapshot",
    "transaction",
    "database",
    "maintenance",
];
/// Modules above all layers.
const TOP: [&str; 2] = ["background", "lib"];

/// Counters that a build for tests has in the code that it counts.
const BELOW: &str = "testing";

fn rank(module: &str) -> usize {
    if module == BELOW {
        return 0;
    }
    let place = LAYERS.iter().position(|layer| *layer == module);
    place.unwrap_or_else(|| {
        assert!(TOP.contains(&module), "the module {module} has no place in LAYERS");
        LAYERS.len()
    })
}

/// Returns the source without tests and comments. Tests may use anything, and comments may name
/// anything.
fn code(text: &str) -> String {
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = product.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Returns the names after `crate::`: the first word of each path.
fn named(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let path = &code[at + "crate::".len()..];
        let list = match path.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap_or_default(),
            None => path.split([';', '(', '<', ')', ',', ' ']).next().unwrap_or_default(),
        };
        let word = |item: &str| {
            item.trim()
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .map(str::to_owned)
        };
        names.extend(list.split(',').filter_map(word).filter(|name| !name.is_empty()));
    }
    names
}

/// Maps each name at the root to the module it comes from.
fn reexports(lib: &str) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for statement in lib.split("pub use ").skip(1) {
        let statement = statement.split(';').next().unwrap_or_default();
        if let Some((path, list)) = statement.rsplit_once("::") {
            let module = path.split("::").next().unwrap_or_default();
            for name in list.trim_matches(|c| "{}\n ".contains(c)).split(',') {
                names.insert(name.trim().to_owned(), module.to_owned());
            }
        }
    }
    names
}

/// Returns the imports that go up, as "module -> module".
fn violations(sources: &[(String, String)], lib: &str) -> Vec<String> {
    let roots = reexports(lib);
    let mut found = Vec::new();
    for (module, text) in sources {
        for name in named(&code(text)) {
            let target = roots.get(&name).unwrap_or(&name);
            if target != module && rank(target) >= rank(module) {
                found.push(format!("{module} -> {target}"));
            }
        }
    }
    found
}

fn read(directory: &Path, module: Option<&str>, into: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(directory).expect("the sources are there") {
        let path = entry.expect("it can be listed").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        let module = module.unwrap_or(name);
        if path.is_dir() {
            read(&path, Some(module), into);
        } else {
            into.push((module.to_owned(), fs::read_to_string(&path).expect("text")));
        }
    }
}

#[test]
fn imports_go_one_way() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lib = fs::read_to_string(source.join("lib.rs")).expect("text");
    let mut sources = Vec::new();
    read(&source, None, &mut sources);
    assert!(sources.len() > 100, "only {} files", sources.len());
    for layer in LAYERS {
        assert!(
            sources.iter().any(|(module, _)| module == layer),
            "there is no module {layer}"
        );
    }
    let found = violations(&sources, &lib);
    assert!(found.is_empty(), "imports that go up: {found:?}");
}

#[test]
fn an_import_that_goes_up_is_found() {
    let lib = "pub use database::{Database, Options};\n";
    let check = |module: &str, text: &str| violations(&[(module.to_owned(), text.to_owned())], lib);
    assert_eq!(check("tree", "use crate::state::Shared;"), ["tree -> state"]);
    assert_eq!(check("tree", "fn a() -> crate::state::Shared {}"), ["tree -> state"]);
    assert_eq!(
        check("log", "use crate::{error::Error, pages::Draft};"),
        ["log -> pages"]
    );
    assert_eq!(
        check("snapshot", "use crate::{Database, error};"),
        ["snapshot -> database"]
    );
    assert!(check("pages", "use crate::log::Position;\n/// [`a`](crate::database::A)").is_empty());
    assert!(
        check(
            "log",
            "use crate::error::Error;\n#[cfg(test)]\nmod tests {\n    use crate::tree::A;\n}"
        )
        .is_empty()
    );
}
