#[cfg(target_os = "linux")]
use std::fs;

use super::time::{SECOND, wait_until};

/// How long a process may take to stop.
const PATIENCE: std::time::Duration = SECOND.saturating_mul(10);

/// Sends a signal to a process that was started by the tests and not yet waited for.
#[track_caller]
pub fn signal(pid: u32, signal: libc::c_int) {
    // SAFETY: no memory is involved.
    let result = unsafe { libc::kill(pid as libc::pid_t, signal) };
    let error = std::io::Error::last_os_error();
    assert_eq!(result, 0, "could not signal process {pid}: {error}");
}

/// Stops a process (SIGSTOP), and waits until it has stopped.
pub fn stop(pid: u32) {
    signal(pid, libc::SIGSTOP);
    wait_until("the process to stop", PATIENCE, || is_stopped(pid));
}

/// Lets a stopped process go on (SIGCONT).
pub fn resume(pid: u32) {
    signal(pid, libc::SIGCONT);
}

#[cfg(target_os = "linux")]
fn is_stopped(pid: u32) -> bool {
    // "<pid> (<name>) <state> ...", and a name may hold spaces and brackets.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process's state");
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| rest.trim_start().starts_with('T'))
}

#[cfg(not(target_os = "linux"))]
fn is_stopped(pid: u32) -> bool {
    let state = std::process::Command::new("ps")
        .args(["-o", "stat=", "-p", &pid.to_string()])
        .output()
        .expect("ps to see the process's state");
    state.stdout.trim_ascii_start().starts_with(b"T")
}
