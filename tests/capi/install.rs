//! `scripts/install`, and `cargo cinstall` beside it: which files there are, and how programs are built with them.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use libtest_mimic::Trial;

use crate::{
    header::listed_symbols,
    support,
    toolchain::{
        blocks_in, compile, is_there, pkg_config, prefix, repository, run, succeed, trial, trial_unless, workshop,
    },
};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What is compiled against the installed library: it holds a lock for a moment.
const PROGRAM: &str = "tests/capi/programs/installed.c";

pub fn trials() -> Vec<Trial> {
    vec![
        trial(
            "the_library_exports_what_is_listed_and_nothing_else",
            &["nm", "readelf"],
            the_library_exports_what_is_listed_and_nothing_else,
        ),
        trial(
            "pkg_config_finds_a_valid_description",
            &["pkg-config"],
            pkg_config_finds_a_valid_description,
        ),
        trial(
            "a_program_finds_the_shared_library_by_its_rpath",
            &["gcc", "pkg-config", "readelf"],
            a_program_finds_the_shared_library_by_its_rpath,
        ),
        trial(
            "a_program_has_the_library_inside_however_it_is_named",
            &["gcc", "pkg-config", "readelf"],
            a_program_has_the_library_inside_however_it_is_named,
        ),
        trial(
            "the_cmake_project_of_the_readme_builds_and_runs",
            &["gcc", "cmake", "make", "pkg-config"],
            the_cmake_project_of_the_readme_builds_and_runs,
        ),
        trial(
            "an_installation_goes_where_it_is_told_whatever_cargo_is_set_to",
            &["gcc", "pkg-config"],
            an_installation_goes_where_it_is_told_whatever_cargo_is_set_to,
        ),
        trial(
            "what_cannot_be_installed_is_refused_before_anything_is_built",
            &[],
            what_cannot_be_installed_is_refused_before_anything_is_built,
        ),
        // To build cargo-c takes many minutes, so not even CI has to have it.
        trial_unless(
            "cargo_c_installs_the_same",
            (!is_there("cargo-cinstall")).then(|| "cargo-c is missing: cargo install cargo-c".to_owned()),
            cargo_c_installs_the_same,
        ),
    ]
}

fn the_library_exports_what_is_listed_and_nothing_else() {
    let library = prefix().join(format!("lib/libredlatch.so.{VERSION}"));
    assert_eq!(exported_symbols(&library), listed_symbols());

    assert_eq!(
        dynamic(&library, "SONAME"),
        [format!("libredlatch.so.{}", compatible())]
    );
    for needed in dynamic(&library, "NEEDED") {
        let of_the_system = ["libgcc_s.so.", "libc.so.", "ld-linux"];
        assert!(
            of_the_system.iter().any(|name| needed.starts_with(name)),
            "the library needs {needed}"
        );
    }
}

fn pkg_config_finds_a_valid_description() {
    pkg_config(&["--validate"]);
    assert_eq!(pkg_config(&["--modversion"]), [VERSION]);
    let libraries = prefix().join("lib").display().to_string();
    assert_eq!(pkg_config(&["--variable=libdir"]), [libraries.as_str()]);
    assert_eq!(
        pkg_config(&["--libs"]),
        [format!("-L{libraries}").as_str(), "-lredlatch"]
    );
    let headers = prefix().join("include").display().to_string();
    assert_eq!(pkg_config(&["--cflags"]), [format!("-I{headers}")]);
    let private = pkg_config(&["--static", "--libs"]).split_off(2);
    assert!(private.iter().any(|library| library == "-lpthread"), "{private:?}");
}

fn a_program_finds_the_shared_library_by_its_rpath() {
    let program = workshop("rpath").join("installed");
    let rpath = format!("-Wl,-rpath,{}", prefix().join("lib").display());
    compile("gcc", &["-std=c99", &rpath], &[PROGRAM], &program);
    assert!(dynamic(&program, "NEEDED").contains(&format!("libredlatch.so.{}", compatible())));
    runs(&program, "rpath");
}

fn a_program_has_the_library_inside_however_it_is_named() {
    let workshop = workshop("static");
    let libraries = prefix().join("lib").display().to_string();
    let private = pkg_config(&["--static", "--libs"]).split_off(2);
    for (how, names) in [
        ("path", vec![format!("{libraries}/libredlatch.a")]),
        (
            "bstatic",
            ["-L", &libraries, "-Wl,-Bstatic", "-lredlatch", "-Wl,-Bdynamic"]
                .map(str::to_owned)
                .to_vec(),
        ),
        (
            "file",
            ["-L", &libraries, "-l:libredlatch.a"].map(str::to_owned).to_vec(),
        ),
    ] {
        let program = workshop.join(how);
        succeed(
            Command::new("gcc")
                .current_dir(repository())
                .arg(PROGRAM)
                .args(pkg_config(&["--cflags"]))
                .args(names)
                .args(&private)
                .arg("-o")
                .arg(&program),
        );
        let needed = dynamic(&program, "NEEDED");
        assert!(
            !needed.iter().any(|name| name.contains("redlatch")),
            "{how}: {needed:?}"
        );
        runs(&program, &format!("static-{how}"));
    }
}

fn the_cmake_project_of_the_readme_builds_and_runs() {
    let readme = fs::read_to_string(repository().join("README.md")).expect("README.md");
    let [project] = blocks_in(&readme, "cmake")[..] else {
        panic!("README.md has one CMake project");
    };
    let name_and_source = project
        .split_once("add_executable(")
        .and_then(|(_, rest)| rest.split_once(')'));
    let (name_and_source, _) = name_and_source.expect("the project has a program");
    let (name, source) = name_and_source.split_once(' ').expect("and that a source");

    let workshop = workshop("cmake");
    fs::write(workshop.join("CMakeLists.txt"), project).expect("the project");
    fs::copy(repository().join(PROGRAM), workshop.join(source)).expect("the source");
    let mut configure = Command::new("cmake");
    let found_by = format!("-DCMAKE_PREFIX_PATH={}", prefix().display());
    succeed(
        configure
            .current_dir(&workshop)
            .args(["-B", "build", &found_by])
            .env("CC", "gcc"),
    );
    succeed(Command::new("cmake").current_dir(&workshop).args(["--build", "build"]));
    runs(&workshop.join("build").join(name), "cmake");
}

fn an_installation_goes_where_it_is_told_whatever_cargo_is_set_to() {
    // Before it is installed with other settings.
    let library = fs::read(prefix().join(format!("lib/libredlatch.so.{VERSION}"))).expect("the library");

    let workshop = workshop("told");
    let mut install = install();
    install
        .current_dir(&workshop)
        .env("DESTDIR", "stage")
        .args(["--prefix=/opt/red latch/", "--libdir", "lib/here"])
        .env("CARGO_TERM_COLOR", "always")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort");
    succeed(&mut install);
    let stage = workshop.join("stage/opt/red latch");
    assert_eq!(
        files(&stage).into_keys().collect::<Vec<_>>(),
        files(prefix())
            .into_keys()
            .map(|path| path.replacen("lib/", "lib/here/", 1))
            .collect::<Vec<_>>()
    );
    let description = fs::read_to_string(stage.join("lib/here/pkgconfig/redlatch.pc")).expect("the description");
    assert!(description.contains("prefix=/opt/red latch\n"), "{description}");
    assert!(description.contains("Libs.private: -l"), "{description}");
    let staged = fs::read(stage.join(format!("lib/here/libredlatch.so.{VERSION}"))).expect("the library");
    assert!(staged == library, "the same library, whose panics unwind");

    // A prefix as seen from where the script is started, and libraries elsewhere.
    let elsewhere = workshop.join("else where");
    let mut install = self::install();
    install
        .current_dir(&workshop)
        .args(["--prefix", "red latch", "--libdir"])
        .arg(&elsewhere);
    succeed(&mut install);
    let mut shell = Command::new("sh");
    shell
        .current_dir(&workshop)
        .args([
            "-ec",
            r#"eval "gcc '$1' -o '$2' $(pkg-config --cflags --libs redlatch)""#,
            "sh",
        ])
        .arg(repository().join(PROGRAM))
        .arg(workshop.join("installed"))
        .env("PKG_CONFIG_PATH", elsewhere.join("pkgconfig"));
    succeed(&mut shell);
    assert!(workshop.join("red latch/include/redlatch.hpp").is_file());
}

fn what_cannot_be_installed_is_refused_before_anything_is_built() {
    for (arguments, why) in [
        (&[][..], "where to?"),
        (&["--prefix"], "--prefix needs a value"),
        (&["--prefix=", "--libdir=lib"], "--prefix needs a value"),
        (&["--prefix=~/redlatch"], "write $HOME"),
        (&["--prefix=/opt/$x"], "no pkg-config file can hold"),
        (&["--prefix=/dev/null/redlatch"], "cannot be written to"),
        (&["--into=/opt"], "unknown argument: --into=/opt"),
    ] {
        let output = run(install().args(arguments));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(why), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?}: it began to build");
    }
    let help = succeed(install().arg("--help"));
    assert!(help.contains("Usage: scripts/install --prefix PREFIX"), "{help}");
}

fn cargo_c_installs_the_same() {
    let theirs = workshop("cargo-c").join("installed");
    let mut cinstall = Command::new("cargo");
    cinstall
        .current_dir(repository())
        .args(["cinstall", "--locked", "--features=tls", "--libdir=lib", "--prefix"]);
    succeed(cinstall.arg(&theirs));

    let ours = prefix();
    assert_eq!(files(ours), files(&theirs));
    for header in ["include/redlatch.h", "include/redlatch.hpp"] {
        let read = |prefix: &Path| fs::read(prefix.join(header)).expect("a header");
        assert!(read(ours) == read(&theirs), "{header} differs");
    }
    let library = format!("lib/libredlatch.so.{VERSION}");
    assert_eq!(exported_symbols(&theirs.join(&library)), listed_symbols());
    for tag in ["SONAME", "NEEDED"] {
        assert_eq!(dynamic(&ours.join(&library), tag), dynamic(&theirs.join(&library), tag));
    }
    for question in [
        &["--modversion"][..],
        &["--cflags", "--libs"],
        &["--static", "--libs"],
        &["--print-provides", "--print-requires", "--print-requires-private"],
    ] {
        let answer = |prefix: &Path| {
            let mut pkg_config = Command::new("pkg-config");
            pkg_config.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
            let answer = succeed(pkg_config.args(question).arg("redlatch"));
            answer.replace(&prefix.display().to_string(), "PREFIX")
        };
        assert_eq!(answer(ours), answer(&theirs), "{question:?}");
    }
}

fn install() -> Command {
    let mut install = Command::new(repository().join("scripts/install"));
    install.env_remove("DESTDIR");
    install
}

/// A built program holds a lock, and has the library of this version without being told where it is.
#[track_caller]
fn runs(program: &Path, name: &str) {
    let server = support::shared();
    let mut command = Command::new(program);
    command.env_remove("LD_LIBRARY_PATH").args([&server.url(), name]);
    let [major, minor, patch] = VERSION
        .split('.')
        .map(|part| part.parse().expect("a number"))
        .collect::<Vec<u64>>()[..]
    else {
        panic!("{VERSION} has three parts");
    };
    let number = major * 1_000_000 + minor * 1_000 + patch;
    assert_eq!(
        succeed(&mut command),
        format!("it worked, header {VERSION} {number}, library {VERSION} {number}\n")
    );
}

/// The version that programs ask for: of 0.1.2 it is 0.1, of 1.2.3 it is 1.
fn compatible() -> String {
    let parts: Vec<_> = VERSION.split('.').collect();
    let significant = if parts[0] == "0" { 2 } else { 1 };
    parts[..significant].join(".")
}

/// All files below a directory, with what those that are links point to.
fn files(directory: &Path) -> BTreeMap<String, Option<PathBuf>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(next) = directories.pop() {
        for entry in fs::read_dir(&next).unwrap_or_else(|error| panic!("{}: {error}", next.display())) {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.is_symlink() {
                directories.push(path);
            } else {
                let name = path.strip_prefix(directory).expect("below it").display().to_string();
                found.insert(name, fs::read_link(&path).ok());
            }
        }
    }
    found
}

fn exported_symbols(library: &Path) -> Vec<String> {
    let listing = succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let symbols = listing.lines().filter_map(|line| line.split_whitespace().last());
    let mut symbols: Vec<_> = symbols.map(str::to_owned).collect();
    symbols.sort();
    symbols
}

/// What the dynamic section of a library or program says under a tag.
fn dynamic(file: &Path, tag: &str) -> Vec<String> {
    let section = succeed(Command::new("readelf").args(["-d", "-W"]).arg(file));
    let entries = section.lines().filter(|line| line.contains(&format!("({tag})")));
    let values = entries.filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned()));
    values.collect()
}
