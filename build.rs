//! With the feature `capi`: makes the header of the C API, into `OUT_DIR` only. See scripts/header.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "capi")]
    capi::generate();
}

#[cfg(feature = "capi")]
mod capi {
    use std::{env, path::Path};

    /// The files of src/ffi that have something to say to the header's readers, in its order.
    const FILES: [&str; 14] = [
        "boundary",
        "status",
        "callback",
        "version",
        "last_error",
        "options",
        "client",
        "lock",
        "semaphore",
        "multi_lock",
        "guard",
        "cancel",
        "inspection",
        "audit",
    ];

    pub(crate) fn generate() {
        println!("cargo::rerun-if-changed=cbindgen.toml");
        println!("cargo::rerun-if-changed=src/ffi");
        let mut config = cbindgen::Config::from_file("cbindgen.toml").expect("cbindgen.toml");
        config.after_includes = Some(macros());
        let mut builder = cbindgen::Builder::new().with_config(config);
        for file in FILES {
            builder = builder.with_src(Path::new("src/ffi").join(file).with_extension("rs"));
        }
        let header = Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join("redlatch.h");
        builder.generate().expect("the C API").write_to_file(header);
    }

    /// Macros that cbindgen cannot make of constants: the version, and `REDLATCH_NUL_TERMINATED` of `boundary.rs`.
    fn macros() -> String {
        let [version, major, minor, patch] = ["", "_MAJOR", "_MINOR", "_PATCH"]
            .map(|part| env::var(format!("CARGO_PKG_VERSION{part}")).expect("cargo sets it"));
        format!(
            "
/** The version of this header. That of the library which is loaded: redlatch_version_string(). */
#define REDLATCH_VERSION \"{version}\"
#define REDLATCH_VERSION_MAJOR {major}
#define REDLATCH_VERSION_MINOR {minor}
#define REDLATCH_VERSION_PATCH {patch}
/** The version of this header as one number to compare, as redlatch_version_number() gives it. */
#define REDLATCH_VERSION_NUMBER \\
  (REDLATCH_VERSION_MAJOR * 1000000 + REDLATCH_VERSION_MINOR * 1000 + REDLATCH_VERSION_PATCH)

/** In place of the length of a name or pattern: it ends before its first NUL. */
#define REDLATCH_NUL_TERMINATED SIZE_MAX"
        )
    }
}
