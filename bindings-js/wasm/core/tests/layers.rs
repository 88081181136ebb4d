//! Proves that the crate's modules import one way: each imports only those before it in `LAYERS`.

use std::fs;
use std::path::Path;

/// Modules in order; each uses only those before it.
const LAYERS: [&str; 24] = [
    "protocol",
    "range",
    "table",
    "client",
    "request",
    "schema",
    "report",
    "secret",
    "lazy",
    "maintenance",
    "filter",
    "index_items",
    "source",
    "scan",
    "difference",
    "feed",
    "followers",
    "pending",
    "state",
    "idle_clients",
    "session",
    "clients",
    "lib",
    "exports",
];

fn rank(module: &str) -> usize {
    let place = LAYERS.iter().position(|layer| *layer == module);
    place.unwrap_or_else(|| panic!("the module {module} has no place in LAYERS"))
}

/// Returns the names after `crate::`: the first word of each path, without those in comments.
fn named(text: &str) -> Vec<String> {
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| [line, "\n"])
        .collect();
    let mut names = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let path = &code[at + "crate::".len()..];
        let list = match path.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap_or_default().split(',').collect(),
            None => vec![path],
        };
        names.extend(list.into_iter().filter_map(|item| {
            let word = item.trim().split(|c: char| !c.is_alphanumeric() && c != '_').next();
            word.filter(|word| !word.is_empty()).map(str::to_owned)
        }));
    }
    names
}

/// Returns the imports that go up, as "module -> module".
fn violations(module: &str, text: &str) -> Vec<String> {
    let upwards = named(text)
        .into_iter()
        .filter(|name| name != module && rank(name) >= rank(module));
    upwards.map(|name| format!("{module} -> {name}")).collect()
}

/// Calls `check` with the module and the text of each source.
fn each_source(directory: &Path, module: Option<&str>, check: &mut impl FnMut(&str, &str)) {
    for entry in fs::read_dir(directory).expect("the sources are there") {
        let path = entry.expect("it can be listed").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        let module = module.unwrap_or(name);
        if path.is_dir() {
            each_source(&path, Some(module), check);
        } else {
            check(module, &fs::read_to_string(&path).expect("text"));
        }
    }
}

#[test]
fn imports_go_one_way() {
    let mut found = Vec::new();
    let mut modules = Vec::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    each_source(&source, None, &mut |module, text| {
        modules.push(module.to_owned());
        found.extend(violations(module, text));
    });
    for layer in LAYERS {
        assert!(
            modules.iter().any(|module| module == layer),
            "there is no module {layer}"
        );
    }
    assert!(found.is_empty(), "imports that go up: {found:?}");
}

#[test]
fn an_import_that_goes_up_is_found() {
    assert_eq!(violations("state", "use crate::session::Writes;"), ["state -> session"]);
    assert_eq!(
        violations("feed", "use crate::{range, state::State};"),
        ["feed -> state"]
    );
    assert!(violations("state", "use crate::{range, report};\n/// [`a`](crate::session::A)").is_empty());
}
