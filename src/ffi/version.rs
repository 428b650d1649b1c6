//! Which version this is.

use std::ffi::c_char;

/// Returns the version of the library that is loaded, such as "0.1.0". REDLATCH_VERSION is that of the header. The
/// text is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn redlatch_version_string() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Returns the version of the library that is loaded as one number to compare, made as REDLATCH_VERSION_NUMBER is:
/// major * 1000000 + minor * 1000 + patch.
///
/// Programs compiled with one version run with later ones of the same major version; while that is 0, with later
/// patches of the same minor version.
#[unsafe(no_mangle)]
pub extern "C" fn redlatch_version_number() -> u32 {
    const fn number(text: &str) -> u32 {
        match u32::from_str_radix(text, 10) {
            Ok(number) => number,
            Err(_) => panic!("a version has three numbers"),
        }
    }
    number(env!("CARGO_PKG_VERSION_MAJOR")) * 1_000_000
        + number(env!("CARGO_PKG_VERSION_MINOR")) * 1_000
        + number(env!("CARGO_PKG_VERSION_PATCH"))
}
