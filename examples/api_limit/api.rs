//! The external API: it counts the calls that are inside at the same time, from the start to the end of each.
//!
//! A request is one line, `<caller> <counts as> <ms>`. The call ends when nothing more has come from the caller for so
//! long, or when the caller hangs up. Only then is it answered, `ok`; a call beyond the limit at once, by `429`.

use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use parking_lot::Mutex;

use crate::Failure;

/// The server, which runs to the end of the process.
pub struct Server {
    address: SocketAddr,
    books: Arc<Mutex<Books>>,
}

/// What the server has seen.
#[derive(Clone, Default)]
pub struct Books {
    pub inside: u32,
    /// The most that wanted to be inside at the same time, refused ones included.
    pub most: u32,
    pub refused: u32,
    /// All calls so far, by their caller.
    pub calls: HashMap<String, u64>,
    pub callers_inside: Vec<String>,
}

impl Server {
    pub fn start(limit: u32) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let server = Server {
            address: listener.local_addr()?,
            books: Arc::default(),
        };
        let books = server.books.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let books = books.clone();
                // One that breaks off has no answer to get.
                thread::spawn(move || serve(stream, &books, limit).ok());
            }
        });
        Ok(server)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn books(&self) -> Books {
        self.books.lock().clone()
    }

    pub fn is_inside(&self, caller: &str) -> bool {
        self.books.lock().callers_inside.iter().any(|inside| inside == caller)
    }
}

fn serve(mut stream: TcpStream, books: &Mutex<Books>, limit: u32) -> Result<(), Failure> {
    let mut request = String::new();
    BufReader::new(&stream).read_line(&mut request)?;
    let [caller, counts_as, ms] = request.split_whitespace().collect::<Vec<_>>()[..] else {
        return Err("bad request".into());
    };
    let counts_as = counts_as.parse()?;
    stream.set_read_timeout(Some(Duration::from_millis(ms.parse()?)))?;

    let admitted = books.lock().enter(caller, counts_as, limit);
    if !admitted {
        return Ok(stream.write_all(b"429")?);
    }
    while stream.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
    books.lock().leave(caller, counts_as);
    Ok(stream.write_all(b"ok")?)
}

impl Books {
    pub fn calls_of(&self, caller: &str) -> u64 {
        self.calls.get(caller).copied().unwrap_or(0)
    }

    fn enter(&mut self, caller: &str, counts_as: u32, limit: u32) -> bool {
        let together = self.inside + counts_as;
        self.most = self.most.max(together);
        if together > limit {
            self.refused += 1;
            return false;
        }
        self.inside = together;
        *self.calls.entry(caller.to_owned()).or_default() += 1;
        self.callers_inside.push(caller.to_owned());
        true
    }

    fn leave(&mut self, caller: &str, counts_as: u32) {
        self.inside -= counts_as;
        if let Some(at) = self.callers_inside.iter().position(|inside| inside == caller) {
            self.callers_inside.swap_remove(at);
        }
    }
}

/// What a caller has of the API. It knows nothing of the limit.
pub struct Api {
    pub address: SocketAddr,
    pub caller: String,
}

impl Api {
    /// Makes a call that takes so long, and that the API counts as so many.
    pub fn call(&self, counts_as: u32, length: Duration) -> Result<(), Failure> {
        self.open(counts_as, length)?.answer()
    }

    /// Begins a call that lasts until it is finished.
    pub fn stream(&self) -> Result<Call, Failure> {
        self.open(1, Duration::from_secs(10))
    }

    fn open(&self, counts_as: u32, length: Duration) -> Result<Call, Failure> {
        let mut connection = TcpStream::connect(self.address)?;
        connection.write_all(format!("{} {counts_as} {}\n", self.caller, length.as_millis()).as_bytes())?;
        Ok(Call { connection })
    }
}

/// A call under way.
pub struct Call {
    connection: TcpStream,
}

impl Call {
    pub fn send_chunk(&mut self) -> io::Result<()> {
        self.connection.write_all(b"chunk")
    }

    /// Ends it; the API does not count it any more.
    pub fn finish(self) -> Result<(), Failure> {
        self.connection.shutdown(Shutdown::Write)?;
        self.answer()
    }

    fn answer(mut self) -> Result<(), Failure> {
        let mut answer = String::new();
        self.connection.read_to_string(&mut answer)?;
        match answer.as_str() {
            "ok" => Ok(()),
            other => Err(format!("the API refused a call: {other:?}").into()),
        }
    }
}
