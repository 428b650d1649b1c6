//! The short way and the long way: `cargo run --example quickstart`, with or without `REDIS_URL`.

fn main() -> Result<(), redlatch::Error> {
    let url = std::env::var("REDIS_URL").unwrap_or_default();
    let url = if url.is_empty() {
        println!("REDIS_URL is not set, so this uses memory:// (locks within this process only)");
        "memory://"
    } else {
        &url
    };
    let client = redlatch::Client::open(url)?;
    let lock = client.lock("quickstart");

    // The short way: wait for the lock, run the closure, release.
    let answer = lock.with_lock(|| 6 * 7)?;
    println!("computed {answer} while nobody else could");

    // The long way: a guard, which is released on drop at the latest.
    let guard = lock.acquire()?;
    println!("fencing token {}", guard.fencing_token());
    println!("held for another {:?} unless renewed", guard.remaining());
    guard.check()?; // before each write that must not happen without the lock; no I/O
    guard.release()?;
    println!("released");
    Ok(())
}
