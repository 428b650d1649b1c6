//! The C API: `include/redlatch.h`, which cbindgen makes from these files, is its documentation.
//!
//! The plumbing is in `boundary` (pointers, bytes, panics), `status` (codes), `last_error` and `handle`; every other
//! file has the functions of one type, in the order of the header. Each function checks and converts its arguments,
//! makes one call of the Rust API, and maps the outcome.
//!
//! # Safety
//!
//! What all of them rely on, and what the header asks of its reader:
//!
//! - A pointer to a handle is null or comes from the function that makes handles of that type, and the handle is freed
//!   neither before nor during the call, but by the `_free` of its type itself, once.
//! - A pointer for a result is null or may be written to.
//! - Bytes that are passed in are null, or as many as is said or ended by a NUL, and do not change during the call.
//! - A callback is null or may be called as its type says, with its `user_data`, when and where the header says that it
//!   is, and returns without unwinding.
//!
//! Anything else is checked here.
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
mod handle;
mod inspection;
mod last_error;
mod lock;
mod mapping;
mod multi_lock;
mod options;
mod semaphore;
mod status;
mod version;
