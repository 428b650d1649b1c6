//! `redlatch_options`: the settings of a client.

use std::{ffi::c_char, fs, path::Path, time::Duration};

use super::{
    boundary::{self, Out, borrow, bytes, free, report, text},
    status::Failed,
};
use crate::{Client, ClientBuilder, fork::ProcessBound, sync::Mutex};

/// Settings for redlatch_client_open_with(). They may serve for many clients, and be freed before these.
pub struct redlatch_options {
    builder: ProcessBound<Mutex<ClientBuilder>>,
}

impl redlatch_options {
    pub(super) fn builder(&self) -> Result<ClientBuilder, Failed> {
        Ok(self.builder.get()?.lock().clone())
    }

    fn set(&self, change: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Result<(), Failed> {
        let mut builder = self.builder.get()?.lock();
        *builder = change(builder.clone());
        Ok(())
    }
}

/// Makes settings, all of them at their defaults. No I/O; the settings are checked by redlatch_client_open_with().
///
/// Errors: REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_options_new(out: *mut *mut redlatch_options) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let out = unsafe { Out::new(out, "out") }?;
        out.hand_out(redlatch_options {
            builder: ProcessBound::new(Mutex::new(Client::builder())),
        });
        Ok(())
    })
}

/// Sets the server, as redlatch_client_open() takes it. Defaults to "redis://127.0.0.1/".
///
/// Errors: REDLATCH_INVALID_ARGUMENT if it is not UTF-8, REDLATCH_NULL_POINTER, REDLATCH_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_options_set_url(options: *mut redlatch_options, url: *const c_char) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (options, url) = unsafe { (borrow(options, "options")?, text(url, "url")?) };
        options.set(|builder| builder.url(url))
    })
}

/// Sets what stands before every key, so that programs can share a server. Defaults to nothing.
///
/// `len` bytes, or up to the first NUL with REDLATCH_NUL_TERMINATED.
/// Errors: REDLATCH_INVALID_ARGUMENT for one that is too long, REDLATCH_NULL_POINTER, REDLATCH_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_options_set_prefix(
    options: *mut redlatch_options,
    prefix: *const c_char,
    len: usize,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (options, prefix) = unsafe { (borrow(options, "options")?, bytes(prefix, len, "prefix")?) };
        options.set(|builder| builder.prefix(prefix))
    })
}

/// Sets what stands between the prefix and a lock's name; may be empty. Defaults to "lock:".
///
/// `len` bytes, or up to the first NUL with REDLATCH_NUL_TERMINATED.
/// Errors: REDLATCH_INVALID_ARGUMENT for one that is too long, REDLATCH_NULL_POINTER, REDLATCH_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_options_set_lock_prefix(
    options: *mut redlatch_options,
    lock_prefix: *const c_char,
    len: usize,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (options, prefix) = unsafe { (borrow(options, "options")?, bytes(lock_prefix, len, "lock_prefix")?) };
        options.set(|builder| builder.lock_prefix(prefix))
    })
}

/// Sets how many requests may be under way at once, each on a connection of its own; the background work has one more.
/// Connections are opened when needed. At least 1; defaults to 10.
///
/// Errors: REDLATCH_NULL_POINTER, REDLATCH_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_options_set_pool_size(options: *mut redlatch_options, pool_size: u32) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let options = unsafe { borrow(options, "options") }?;
        options.set(|builder| builder.pool_size(pool_size))
    })
}

/// Sets how long opening a connection may take, at most; it counts into the command timeout. In milliseconds, from 1
/// to 3600000 (1 hour); defaults to 1000.
///
/// Errors: REDLATCH_NULL_POINTER, REDLATCH_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_options_set_connect_timeout_ms(
    options: *mut redlatch_options,
    connect_timeout_ms: u64,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let options = unsafe { borrow(options, "options") }?;
        options.set(|builder| builder.connect_timeout(Duration::from_millis(connect_timeout_ms)))
    })
}

/// Sets how long one request may take, at most: waiting for a free connection, opening one and the answer included. In
/// milliseconds, from 1 to 3600000 (1 hour); defaults to 2000.
///
/// It does not limit how long an acquire waits; it is by how much an acquire can be late when the server does not
/// answer. A redlatch_guard_free() then takes one, a redlatch_guard_release() two.
/// Errors: REDLATCH_NULL_POINTER, REDLATCH_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_options_set_command_timeout_ms(
    options: *mut redlatch_options,
    command_timeout_ms: u64,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let options = unsafe { borrow(options, "options") }?;
        options.set(|builder| builder.command_timeout(Duration::from_millis(command_timeout_ms)))
    })
}

/// Sets the longest pause between two looks of a waiter that nobody wakes: by when a release of another library is
/// noticed. In milliseconds, from 10 to 3600000 (1 hour); defaults to 1000.
///
/// It is also how a waiter shows that it is alive: one that was not heard of for two and a half times as long is passed
/// over.
/// Errors: REDLATCH_NULL_POINTER, REDLATCH_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_options_set_poll_interval_ms(
    options: *mut redlatch_options,
    poll_interval_ms: u64,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let options = unsafe { borrow(options, "options") }?;
        options.set(|builder| builder.poll_interval(Duration::from_millis(poll_interval_ms)))
    })
}

/// Sets how the sentinels of a "redis-sentinel://" URL are logged in to, if they want that; the URL's own log-in is for
/// the master. An empty `user` is the default one. Defaults to none.
///
/// Errors: REDLATCH_INVALID_ARGUMENT if one of them is not UTF-8, REDLATCH_NULL_POINTER, REDLATCH_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_options_set_sentinel_login(
    options: *mut redlatch_options,
    user: *const c_char,
    password: *const c_char,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (options, user, password) = unsafe {
            (
                borrow(options, "options")?,
                text(user, "user")?,
                text(password, "password")?,
            )
        };
        options.set(|builder| builder.sentinel_login(user, password))
    })
}

/// Sets whether there is TLS on the connections although the URL does not say so, as "rediss://" does: for
/// "redis-sentinel://" (the sentinels and the master both) and other URLs of several servers. Not for "unix://" and
/// "memory://". Defaults to false.
///
/// TLS 1.2 and 1.3 are spoken. A server has to prove that it is the host in the URL, be that a name or an IP address,
/// before anything else is sent to it; nothing turns that off. redlatch_client_open_with() gives REDLATCH_UNSUPPORTED
/// where the library was built without TLS.
/// Errors: REDLATCH_NULL_POINTER, REDLATCH_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_options_set_tls(options: *mut redlatch_options, tls: bool) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let options = unsafe { borrow(options, "options") }?;
        options.set(|builder| builder.tls(tls))
    })
}

/// Sets the PEM file of those who may have signed the server's certificate: one or more certificates. It is read at
/// once. Nobody else is trusted then. Defaults to those whom the system trusts.
///
/// Errors: REDLATCH_INVALID_ARGUMENT for a file that cannot be read (what is in it is checked by
/// redlatch_client_open_with()), REDLATCH_NULL_POINTER, REDLATCH_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_options_set_tls_ca_file(options: *mut redlatch_options, path: *const c_char) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (options, path) = unsafe { (borrow(options, "options")?, boundary::path(path, "path")?) };
        let pem = contents(path)?;
        options.set(|builder| builder.tls_ca(pem))
    })
}

/// Sets the PEM files of what the server is shown when it wants a client certificate: that (followed by those between
/// it and the authority, if there are any) and its private key, not encrypted; it may be one file for both. They are
/// read at once. Defaults to none.
///
/// Errors: REDLATCH_INVALID_ARGUMENT for a file that cannot be read (what is in it is checked by
/// redlatch_client_open_with()), REDLATCH_NULL_POINTER, REDLATCH_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_options_set_tls_client_certificate_files(
    options: *mut redlatch_options,
    certificate_path: *const c_char,
    key_path: *const c_char,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (options, certificate, key) = unsafe {
            (
                borrow(options, "options")?,
                boundary::path(certificate_path, "certificate_path")?,
                boundary::path(key_path, "key_path")?,
            )
        };
        let (certificate, key) = (contents(certificate)?, contents(key)?);
        options.set(|builder| builder.tls_client_certificate(certificate, key))
    })
}

/// Sets the longest lease on a Redlock ("redlock://…"); other servers have no such limit. In milliseconds, from 10 to
/// 10 years; defaults to 60000.
///
/// A server that may have lost its memory in a restart votes on no grant until it has been up for so long, or was seen
/// by this client so long ago. So all clients have to set the same, longer leases are refused, and a fresh deployment
/// grants nothing for so long. Locks that set no lease have this one if it is shorter than the default of 30 s.
/// Errors: REDLATCH_NULL_POINTER, REDLATCH_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_options_set_max_lease_ms(options: *mut redlatch_options, max_lease_ms: u64) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let options = unsafe { borrow(options, "options") }?;
        options.set(|builder| builder.max_lease(Duration::from_millis(max_lease_ms)))
    })
}

/// Sets how long the answer of one server of a Redlock ("redlock://…") may take, opening a connection to it included;
/// for other servers only the command timeout counts. In milliseconds, from 1 to 3600000 (1 hour); defaults to 100.
///
/// It is what a server that is silent costs those who ask, until it is left out; and again, for one of them, once in a
/// second.
/// Errors: REDLATCH_NULL_POINTER, REDLATCH_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_options_set_node_timeout_ms(
    options: *mut redlatch_options,
    node_timeout_ms: u64,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let options = unsafe { borrow(options, "options") }?;
        options.set(|builder| builder.node_timeout(Duration::from_millis(node_timeout_ms)))
    })
}

/// Frees settings. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_options_free(options: *mut redlatch_options) {
    // SAFETY: see the module.
    unsafe { free(options) }
}

fn contents(path: &Path) -> Result<Vec<u8>, Failed> {
    fs::read(path).map_err(|error| Failed::invalid(format!("`{}` cannot be read: {error}", path.display())))
}
