//! The client of all tests and benchmarks: HTTP/1.1 over a unix socket or a port, one request at a time. Written by hand, so
//! that it shares nothing with what it talks to and says exactly what it is told to, right or wrong.

mod events;
mod websocket;

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::read::GzDecoder;
use serde_json::Value;

pub use events::{EventText, Events};
pub use websocket::{Frames, WebSocket};

/// Longer than anything takes on a busy machine; reaching it is a failure.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Where a server is, and what one has to show there.
#[derive(Debug, Clone)]
pub enum Place {
    Socket(PathBuf),
    Port { address: String, token: Option<String> },
}

impl From<&Path> for Place {
    fn from(socket: &Path) -> Self {
        Self::Socket(socket.to_owned())
    }
}

impl From<&PathBuf> for Place {
    fn from(socket: &PathBuf) -> Self {
        Self::Socket(socket.clone())
    }
}

impl From<&Place> for Place {
    fn from(place: &Place) -> Self {
        place.clone()
    }
}

impl Place {
    /// A port, for those who show no token.
    pub fn open_port(address: &str) -> Self {
        Self::Port { address: address.to_owned(), token: None }
    }

    /// A socket of the internet does for reading and writing what one of this machine does.
    pub fn dial(&self) -> io::Result<UnixStream> {
        match self {
            Self::Socket(path) => connect(path),
            Self::Port { address, .. } => Ok(OwnedFd::from(TcpStream::connect(address)?).into()),
        }
    }

    fn host(&self) -> &str {
        match self {
            Self::Socket(_) => "intercom",
            Self::Port { address, .. } => address,
        }
    }
}

/// Connects, also where the path is longer than the address of a socket may be.
pub fn connect(socket: &Path) -> io::Result<UnixStream> {
    let dir = std::fs::File::open(socket.parent().unwrap())?;
    let through = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string());
    UnixStream::connect(through.join(socket.file_name().unwrap()))
}

/// What a server answered.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// 0: hung up without a word.
    pub status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// Unpacked, if it came packed.
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    /// `name=value` of the cookie that was set.
    #[track_caller]
    pub fn cookie(&self) -> &str {
        let set = self.header("set-cookie").unwrap_or_else(|| panic!("no cookie: {self:?}"));
        set.split(';').next().unwrap()
    }
}

/// A connection, kept for as many requests as one likes.
#[derive(Debug)]
pub struct Connection {
    reader: BufReader<UnixStream>,
    place: Place,
}

impl Connection {
    pub fn open(place: impl Into<Place>) -> io::Result<Self> {
        let place = place.into();
        Ok(Self { place: place.clone(), ..Self::over(place.dial()?) })
    }

    /// One that was opened by others.
    pub fn over(stream: UnixStream) -> Self {
        let connection = Self { reader: BufReader::new(stream), place: Place::Socket(PathBuf::new()) };
        connection.waits(Some(PATIENCE)).unwrap();
        connection
    }

    /// How long a read may take, rather than [`PATIENCE`].
    pub fn waits(&self, patience: Option<Duration>) -> io::Result<()> {
        self.reader.get_ref().set_read_timeout(patience)
    }

    /// By which it can be hung up from elsewhere.
    pub fn handle(&self) -> io::Result<UnixStream> {
        self.reader.get_ref().try_clone()
    }

    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> io::Result<Answer> {
        self.send(method, path, headers, body)?;
        self.answer()
    }

    pub fn get(&mut self, path: &str) -> io::Result<(u16, Value)> {
        let answer = self.request("GET", path, &[("accept", "application/json")], "")?;
        Ok((answer.status, answer.json()))
    }

    pub fn post(&mut self, path: &str, body: &Value) -> io::Result<(u16, Value)> {
        let headers = [("accept", "application/json"), ("content-type", "application/json")];
        let answer = self.request("POST", path, &headers, &body.to_string())?;
        Ok((answer.status, answer.json()))
    }

    /// A request with these headers, and those that the place asks for and that are not among them.
    pub fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> io::Result<()> {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        let mut say = |name: &str, value: &str| write!(head, "{name}: {value}\r\n").unwrap();
        if !headers.iter().any(|(name, _)| *name == "host") {
            say("host", self.place.host());
        }
        if let Place::Port { token: Some(token), .. } = &self.place {
            say("authorization", &format!("Bearer {token}"));
        }
        for (name, value) in headers {
            say(name, value);
        }
        if !headers.iter().any(|(name, _)| *name == "upgrade") {
            say("content-length", &body.len().to_string());
        }
        head += "\r\n";
        if body.len() < 64 * 1024 {
            return self.write_all((head + body).as_bytes());
        }
        self.write_all(head.as_bytes())?;
        self.write_all(body.as_bytes()).ok(); // what is refused may be answered before it is read
        Ok(())
    }

    /// The whole answer. What ends early is what came of it.
    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        let mut answer = self.head()?;
        let mut body = Vec::new();
        if let Some(length) = answer.header("content-length").and_then(|length| length.parse().ok()) {
            // No further: a server that refused our body has hung up behind its answer.
            if answer.status != 304 {
                (&mut self.reader).take(length).read_to_end(&mut body).ok();
            }
        } else if answer.header("transfer-encoding").is_some() {
            while let Ok(Some(chunk)) = self.chunk() {
                body.extend(chunk);
            }
        }
        answer.body = if answer.header("content-encoding") == Some("gzip") {
            io::read_to_string(GzDecoder::new(&*body))?
        } else {
            String::from_utf8_lossy(&body).into_owned()
        };
        Ok(answer)
    }

    /// All of the answer but its body.
    pub fn head(&mut self) -> io::Result<Answer> {
        let line = self.line()?;
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("not an answer: {line:?}")))?;
        let mut answer = Answer { status, ..Answer::default() };
        while let Some((name, value)) = self.line()?.split_once(':') {
            answer.headers.push((name.to_owned(), value.trim().to_owned()));
        }
        Ok(answer)
    }

    /// The next piece of a body that comes in pieces; none is its end.
    pub(crate) fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line = self.line()?;
        let size = usize::from_str_radix(&line, 16)
            .map_err(|_| io::Error::other(format!("not the size of a chunk: {line:?}")))?;
        let mut chunk = vec![0; size + 2];
        self.reader.read_exact(&mut chunk)?;
        chunk.truncate(size);
        Ok((size > 0).then_some(chunk))
    }

    /// Without its end.
    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}

/// Whatever comes, as it comes.
impl Read for Connection {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buf)
    }
}

/// Whatever is said, as it is said.
impl Write for Connection {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.reader.get_mut().write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One request on a connection of its own, and its whole answer.
pub fn exchange(
    place: impl Into<Place>,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let headers = [headers, &[("connection", "close")]].concat();
    let answer = Connection::open(place).and_then(|mut connection| {
        connection.send(method, path, &headers, body).ok(); // the answer says what came of it
        connection.answer()
    });
    answer.unwrap_or_default() // a server that has gone has nothing to say, either
}
