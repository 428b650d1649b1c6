//! A page of memory that all workers share, by which they notice it if more of them hold a lock, or permits of a
//! semaphore, than may at a time. It costs some nanoseconds a turn, and no request.

use std::{
    fs::File,
    io,
    os::fd::AsRawFd,
    path::Path,
    ptr,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use tempfile::NamedTempFile;

pub struct Room {
    page: &'static Page,
    /// Of its creator.
    file: Option<NamedTempFile>,
}

/// Lies at the start of the file. All zeros to begin with.
struct Page {
    inside: AtomicU64,
    /// The largest that `inside` has been.
    most_inside: AtomicU64,
    last_token: AtomicU64,
}

impl Room {
    pub fn create() -> io::Result<Self> {
        let file = NamedTempFile::new()?;
        file.as_file().set_len(size_of::<Page>() as u64)?;
        Ok(Room {
            page: map(file.as_file())?,
            file: Some(file),
        })
    }

    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        Ok(Room {
            page: map(&file)?,
            file: None,
        })
    }

    pub fn path(&self) -> &Path {
        self.file.as_ref().expect("the creator's room").path()
    }

    /// Prepares it for another lock or semaphore.
    pub fn clear(&self) {
        self.page.inside.store(0, SeqCst);
        self.page.most_inside.store(0, SeqCst);
        self.page.last_token.store(0, SeqCst);
    }

    /// How many were in it at a time, at most.
    pub fn most_inside(&self) -> u64 {
        self.page.most_inside.load(SeqCst)
    }

    /// To be called by whoever was granted what `limit` may hold, with the fencing token if there is one.
    pub fn enter(&self, limit: u32, token: Option<u64>) {
        let inside = self.page.inside.fetch_add(1, SeqCst) + 1;
        assert!(inside <= limit.into(), "{inside} hold what {limit} may");
        self.page.most_inside.fetch_max(inside, SeqCst);
        // Holders of permits may come in in another order than they were granted.
        if let (Some(token), 1) = (token, limit) {
            let last = self.page.last_token.swap(token, SeqCst);
            assert!(last < token, "fencing token {token} came after {last}");
        }
    }

    /// To be called before it is released.
    pub fn leave(&self) {
        self.page.inside.fetch_sub(1, SeqCst);
    }
}

fn map(file: &File) -> io::Result<&'static Page> {
    // SAFETY: a new mapping, at an address of the kernel's choice, of a file that is open and as long as a page of
    // ours.
    let address = unsafe {
        libc::mmap(
            ptr::null_mut(),
            size_of::<Page>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is aligned, never unmapped, valid whatever its bits are, and changed by atomic operations
    // only.
    Ok(unsafe { &*address.cast::<Page>() })
}
