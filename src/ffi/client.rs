//! `redlatch_client`.

use std::ffi::c_char;

use super::{
    boundary::{Out, borrow, free, report, text},
    mapping,
    options::redlatch_options,
    status::Failed,
};
use crate::{Client, ClientBuilder};

/// A way to the server or servers of one URL, shared by the locks and semaphores made from it. Open one for each
/// program.
///
/// It keeps a pool of connections, opened when needed, and a few background threads. What was made from it keeps it
/// alive: with the last of them, in whatever order they are freed, its threads end, within one command timeout. Each
/// look-up of a host name and each connect to a Unix socket has a short-lived thread, which may stay for as long as the
/// system takes.
pub struct redlatch_client {
    pub(super) client: Client,
}

impl redlatch_client {
    fn hand_out(builder: ClientBuilder, out: Out<*mut Self>) -> Result<(), Failed> {
        let client = builder.build()?;
        // Before any thread is started that could outlive its code.
        mapping::keep();
        out.hand_out(Self { client });
        Ok(())
    }
}

/// Makes a client for the server at `url`, with the default settings. Nothing is sent yet.
///
/// | URL                                                         | server                                     |
/// |-------------------------------------------------------------|--------------------------------------------|
/// | redis://[user:password@]host[:port][/database]              | Redis or Valkey over TCP; also valkey://   |
/// | rediss://...                                                | the same over TLS; also valkeys://         |
/// | unix:///path/to/socket[?user=...&pass=...&db=...]           | the same on a Unix socket                  |
/// | redis-sentinel://[user:password@]host,...[/database]#master | the master, as Redis Sentinel knows it     |
/// | redis-cluster://[user:password@]host,...                    | Redis Cluster, by some of its nodes        |
/// | redlock://[user:password@]host,...[/database]               | masters, of which a majority grants a lock |
/// | memory://[name]                                             | none: the locks live in this process       |
///
/// Each of several hosts may have a :port. In a password on a Unix socket, %2B stands for a +.
///
/// Errors: REDLATCH_INVALID_ARGUMENT for a URL that cannot be used or has a part that would not be acted on,
/// REDLATCH_UNSUPPORTED for a kind of server that this version does not speak to, or for TLS where the library was
/// built without it, REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_client_open(url: *const c_char, out: *mut *mut redlatch_client) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (url, out) = unsafe { (text(url, "url")?, Out::new(out, "out")?) };
        redlatch_client::hand_out(Client::builder().url(url), out)
    })
}

/// Makes a client with settings of your own. Nothing is sent yet.
///
/// Errors: as redlatch_client_open(), and REDLATCH_INVALID_ARGUMENT for a setting that cannot work; REDLATCH_FORKED for
/// settings that the parent made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_client_open_with(
    options: *const redlatch_options,
    out: *mut *mut redlatch_client,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (options, out) = unsafe { (borrow(options, "options")?, Out::new(out, "out")?) };
        redlatch_client::hand_out(options.builder()?, out)
    })
}

/// Frees a client. What was made from it goes on working. Does nothing for NULL.
///
/// Blocks for at most one command timeout if it was the last handle. In a forked child no I/O, and no waiting.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_client_free(client: *mut redlatch_client) {
    // SAFETY: see the module.
    unsafe { free(client) }
}
