//! The C API: `include/redlatch.h`, which cbindgen makes from these files, is its documentation.
//!
//! The plumbing is in `boundary` (pointers, bytes, panics), `status` (codes), `last_error` and `named`; every other
//! file has the functions of one type, in the order of the header. Each function checks and converts its arguments,
//! makes one call of the Rust API, and maps the outcome.
//!
//! # Safety
//!
//! What all of them rely on, and what the header asks of its reader: a pointer to a handle is null or comes from the
//! function that makes such handles and has not been freed; a pointer for a result is null or may be written to; text
//! is null, or as long as is said or ended by a NUL. Anything else is checked here.
// The names are those of the header.
#![allow(non_camel_case_types)]
// The only place with unsafe code.
#![allow(unsafe_code)]

mod audit;
mod boundary;
mod callback;
mod cancel;
mod client;
mod guard;
mod inspection;
mod last_error;
mod lock;
mod mapping;
mod named;
mod options;
mod semaphore;
mod status;
mod version;
