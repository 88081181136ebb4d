//! The functions that pages load at the first call, with all that only they reach, are marked where they
//! are: the build of the package finds them by the mark.

use std::fs;
use std::path::Path;

const MARK: &str = "// Lazy root.";

/// Names of the marked functions of all files below a directory.
fn roots(directory: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).expect("the sources are here") {
        let path = entry.expect("the sources are here").path();
        if path.is_dir() {
            roots(&path, found);
            continue;
        }
        let text = fs::read_to_string(&path).expect("sources are text");
        let mut lines = text.lines().map(str::trim);
        while let Some(line) = lines.next() {
            if line != MARK {
                continue;
            }
            // Inlined into its caller, it would be part of the core.
            assert_eq!(lines.next(), Some("#[inline(never)]"), "{}", path.display());
            let function = lines.find(|line| !line.starts_with("#["));
            let name = function.and_then(|line| line.split_once("fn "));
            let (_, name) = name.unwrap_or_else(|| panic!("no function follows a mark in {}", path.display()));
            let end = name.find(['(', '<']).expect("it has parameters");
            found.push(name[..end].to_owned());
        }
    }
}

#[test]
fn each_mark_is_at_a_function_that_is_called_and_not_inlined() {
    let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for directory in ["src", "../../../engine/src"] {
        roots(&crate_directory.join(directory), &mut found);
    }
    found.sort();
    assert!(found.len() >= 20, "{found:?}");
    for name in ["execute_lazy", "refresh", "clear_indexed", "unindex_keys", "advance"] {
        assert!(found.iter().any(|found| found == name), "{name} is not marked");
    }
}
