//! Keeping the library mapped: the threads of its clients may need their code for longer than the program does.

use std::{
    ffi::c_void,
    mem::MaybeUninit,
    sync::atomic::{AtomicBool, Ordering},
};

/// Has the shared object that this code is in, the library itself or one that it is linked into, stay mapped for ever,
/// however often it is closed.
pub(super) fn keep() {
    // No `Once`: a thread that is in the middle of one is missing in a forked child. Twice does no harm.
    static KEPT: AtomicBool = AtomicBool::new(false);
    if KEPT.load(Ordering::Relaxed) {
        return;
    }
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: the address is of this library's code, and there is room for the answer, which is read only if there is
    // one. The name in it lives as long as the object is mapped, which it is now. Nothing is loaded.
    let kept = unsafe {
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        libc::dladdr(keep as *const c_void, found.as_mut_ptr()) != 0
            && !libc::dlopen(found.assume_init().dli_fname, flags).is_null()
    };
    // In a program that is linked statically there is nothing to keep, and nothing that could be unmapped.
    KEPT.store(kept, Ordering::Relaxed);
}
