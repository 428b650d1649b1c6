//! `include/redlatch.h` as a text: that it is up to date, complete, and fit for every compiler.

use std::{collections::BTreeSet, fs, process::Command};

use libtest_mimic::Trial;

use crate::toolchain::{pkg_config, repository, succeed, trial, workshop};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(
            "the_committed_header_is_what_the_source_gives",
            &[],
            the_committed_header_is_what_the_source_gives,
        ),
        trial(
            "the_committed_symbols_are_what_the_header_declares",
            &[],
            the_committed_symbols_are_what_the_header_declares,
        ),
        trial(
            "every_function_is_documented_and_names_its_errors",
            &[],
            every_function_is_documented_and_names_its_errors,
        ),
        trial(
            "the_documentation_speaks_of_nothing_that_is_not_there",
            &[],
            the_documentation_speaks_of_nothing_that_is_not_there,
        ),
        trial(
            "no_line_of_the_header_has_more_than_120_columns",
            &[],
            no_line_of_the_header_has_more_than_120_columns,
        ),
        trial(
            "gcc_takes_the_header_alone_and_twice",
            &["gcc", "g++", "pkg-config"],
            || stands_alone("gcc", "g++"),
        ),
        trial(
            "clang_takes_the_header_alone_and_twice",
            &["clang", "clang++", "pkg-config"],
            || stands_alone("clang", "clang++"),
        ),
    ]
}

/// The functions of the symbol list, which is in alphabetical order.
pub fn listed_symbols() -> Vec<String> {
    read("redlatch.symbols").lines().map(str::to_owned).collect()
}

fn read(name: &str) -> String {
    fs::read_to_string(repository().join("include").join(name)).expect("a file in include/")
}

fn the_committed_header_is_what_the_source_gives() {
    let fresh = fs::read_to_string(concat!(env!("OUT_DIR"), "/redlatch.h")).expect("what build.rs made");
    let committed = read("redlatch.h");
    let differs = committed.lines().zip(fresh.lines()).position(|(ours, its)| ours != its);
    assert!(
        committed == fresh,
        "include/redlatch.h is not what src/ffi gives (see line {}): run scripts/header",
        1 + differs.unwrap_or(committed.lines().count().min(fresh.lines().count()))
    );
}

fn the_committed_symbols_are_what_the_header_declares() {
    let declared: Vec<_> = declared(&read("redlatch.h")).into_iter().collect();
    assert!(declared.len() > 50, "only {declared:?} were found in the header");
    assert_eq!(
        declared,
        listed_symbols(),
        "include/redlatch.symbols is not what the header declares: run scripts/header"
    );
}

fn every_function_is_documented_and_names_its_errors() {
    let header = read("redlatch.h");
    let functions = Function::all(&header);
    let documented: BTreeSet<_> = functions.iter().map(|function| function.name.to_owned()).collect();
    assert_eq!(documented, declared(&header), "these and no others have a comment");

    let codes = status_codes(&header);
    for function in functions {
        assert!(
            function.comment.trim_matches(['*', ' ', '\n']).len() > 20,
            "{} says next to nothing",
            function.name
        );
        let errors = function.comment.split_once("Errors:").map(|(_, errors)| errors);
        match errors {
            Some(errors) => {
                assert!(function.gives_a_status(), "{} returns no errors", function.name);
                let names_a_code = words(errors).any(|word| codes.contains(word));
                let refers_to_another = words(errors).any(|word| word.starts_with("redlatch_"));
                assert!(names_a_code || refers_to_another, "{}: which errors?", function.name);
            }
            None => assert!(
                !function.gives_a_status(),
                "{} does not say which errors",
                function.name
            ),
        }
    }
}

fn the_documentation_speaks_of_nothing_that_is_not_there() {
    let header = read("redlatch.h");
    let code = without_comments(&header);
    let there: BTreeSet<_> = words(&code).collect();
    for word in words(&header) {
        let is_a_name = word.starts_with("redlatch_") || word.starts_with("REDLATCH_");
        // "REDLATCH_LOST_..." stands for several.
        if is_a_name && !word.ends_with('_') {
            assert!(there.contains(word), "{word} is spoken of, but not declared");
        }
    }
}

fn no_line_of_the_header_has_more_than_120_columns() {
    for (number, line) in read("redlatch.h").lines().enumerate() {
        let length = line.chars().count();
        assert!(length <= 120, "line {} has {length} columns", number + 1);
    }
}

fn stands_alone(c: &str, cpp: &str) {
    let workshop = workshop(&format!("header-alone-{c}"));
    let source = workshop.join("alone");
    fs::write(&source, "#include <redlatch.h>\n#include <redlatch.h>\n").expect("a source");
    for (compiler, language, standard) in [(c, "c", "c99"), (c, "c", "c11"), (cpp, "c++", "c++17")] {
        let mut command = Command::new(compiler);
        command
            .args([
                "-fsyntax-only",
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Wundef",
                "-Wconversion",
                "-Werror",
            ])
            .arg(format!("-std={standard}"))
            .args(pkg_config(&["--cflags"]))
            .args(["-x", language])
            .arg(&source);
        if language == "c" {
            command.arg("-Wstrict-prototypes");
        }
        succeed(&mut command);
    }
}

/// A function with its comment.
struct Function<'a> {
    comment: &'a str,
    name: &'a str,
    returns: &'a str,
}

impl<'a> Function<'a> {
    /// Those that have a comment right before them.
    fn all(header: &'a str) -> Vec<Self> {
        let mut functions = vec![];
        for part in header.split("\n/**\n").skip(1) {
            let (comment, rest) = part.split_once("*/\n").expect("a comment ends");
            let declaration = rest.split(';').next().unwrap_or_default();
            if let Some((before, _)) = declaration.split_once('(')
                && let Some(at) = before.rfind("redlatch_")
                && !before.starts_with("typedef")
            {
                let (returns, name) = before.split_at(at);
                functions.push(Self { comment, name, returns });
            }
        }
        functions
    }

    fn gives_a_status(&self) -> bool {
        self.returns.trim() == "int32_t" && !self.name.ends_with("_lost_reason")
    }
}

/// The functions that are declared, documented or not.
fn declared(header: &str) -> BTreeSet<String> {
    let code = without_comments(header);
    let before_brackets = code.match_indices('(').filter_map(|(at, _)| {
        let word = words(&code[..at]).last()?;
        (word.starts_with("redlatch_") && code[..at].ends_with(word)).then(|| word.to_owned())
    });
    before_brackets.collect()
}

fn status_codes(header: &str) -> BTreeSet<&str> {
    let defined = header.lines().filter_map(|line| line.strip_prefix("#define "));
    let codes = defined.filter_map(|line| line.split_once(" -").map(|(name, _)| name));
    let codes: BTreeSet<_> = codes.collect();
    assert!(codes.contains("REDLATCH_TIMEOUT"), "{codes:?}");
    codes
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_separator = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    text.split(is_separator).filter(|word| !word.is_empty())
}

fn without_comments(mut header: &str) -> String {
    let mut code = String::new();
    while let Some(at) = header.find("/*").into_iter().chain(header.find("//")).min() {
        code += &header[..at];
        let end = if header[at..].starts_with("/*") { "*/" } else { "\n" };
        let (_, after) = header[at..].split_once(end).expect("a comment ends");
        header = after;
        code.push('\n');
    }
    code + header
}
