//! Proves that the byte tables at the top of the modules match those of `docs/FORMAT.md`.

use std::fs;
use std::path::{Path, PathBuf};

/// A field: its offset, its length, and whether it is zero.
type Field = (usize, usize, bool);

/// The fields of each table in order.
type Tables = Vec<Vec<Field>>;

fn size_of(kind: &str) -> Option<usize> {
    match kind {
        "u8" => Some(1),
        "u16" => Some(2),
        "u32" => Some(4),
        "u64" => Some(8),
        "u128" => Some(16),
        _ => kind.strip_prefix('[')?.strip_suffix(']')?.parse().ok(),
    }
}

fn add(tables: &mut Tables, field: Field) {
    if field.0 == 0 {
        tables.push(Vec::new());
    }
    tables.last_mut().expect("a table begins at 0").push(field);
}

/// Returns the tables in a module's header comment: `12  u32  what it is; 16 u8 0`.
fn of_module(text: &str) -> Tables {
    let mut tables = Tables::new();
    let top = text.lines().take_while(|line| line.starts_with("//!"));
    for part in top.flat_map(|line| line[3..].split("; ")) {
        let mut words = part.split_whitespace();
        let at = words.next().and_then(|word| word.parse().ok());
        let size = words.next().and_then(size_of);
        if let (Some(at), Some(size)) = (at, size) {
            add(&mut tables, (at, size, words.next() == Some("0")));
        }
    }
    tables
}

/// Returns the tables of a section of the document: `| 12 | 4 | what it is |`.
fn of_section(text: &str) -> Tables {
    let mut tables = Tables::new();
    for line in text.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let [_, at, size, what, ..] = cells[..]
            && let (Ok(at), Ok(size)) = (at.parse(), size.parse())
        {
            add(&mut tables, (at, size, what == "0"));
        }
    }
    tables
}

/// Returns the sections that name a file, with that file's path. A name without a folder refers to
/// the folder of the previous section's file.
fn sections(document: &str, root: &Path) -> Vec<(PathBuf, String)> {
    let mut folder = PathBuf::new();
    let mut found = Vec::new();
    for section in document.split("\n#").skip(1) {
        let (title, text) = section.split_once('\n').unwrap_or((section, ""));
        let Some(name) = title.split("(`").nth(1).and_then(|rest| rest.split('`').next()) else {
            continue;
        };
        let mut path = if name.contains('/') {
            root.join(name)
        } else {
            folder.join(name)
        };
        if path.is_dir() {
            path = path.join("mod.rs");
        }
        folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        found.push((path, text.to_owned()));
    }
    found
}

#[test]
fn modules_and_document_have_the_same_fields() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let document = fs::read_to_string(root.join("docs/FORMAT.md")).expect("the document is there");
    let mut compared = 0;
    for (path, text) in sections(&document, root) {
        let module = fs::read_to_string(&path).unwrap_or_else(|_| panic!("FORMAT.md names {}", path.display()));
        let module = of_module(&module);
        for (index, table) in of_section(&text).iter().enumerate() {
            let same = module.get(index);
            assert_eq!(Some(table), same, "table {index} of {}", path.display());
            compared += 1;
        }
    }
    assert_eq!(
        compared, 8,
        "superblock, block, node, half of the log, record, header, key and frame of a backup"
    );
}

#[test]
fn fields_follow_one_another() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let document = fs::read_to_string(root.join("docs/FORMAT.md")).expect("the document is there");
    for (path, text) in sections(&document, root) {
        for table in of_section(&text) {
            let mut end = 0;
            for (at, size, _) in table {
                assert_eq!(at, end, "in {}", path.display());
                end = at + size;
            }
        }
    }
}

#[test]
fn a_difference_is_found() {
    let module = of_module("//! 0  u32  magic\n//! 4  [3] 0; 7 u8 level\nuse std::fs;\n// 8 u8 0\n");
    assert_eq!(module, [[(0, 4, false), (4, 3, true), (7, 1, false)]]);
    assert_eq!(
        module,
        of_section("| at | size |\n| 0 | 4 | magic |\n| 4 | 3 | 0 |\n| 7 | 1 | level |\n| 8 | | x |")
    );
    assert_ne!(module, of_section("| 0 | 4 | magic |\n| 4 | 3 | 0 |\n| 7 | 1 | 0 |"));
    assert_ne!(module, of_section("| 0 | 4 | magic |\n| 4 | 4 | 0 |"));
}
