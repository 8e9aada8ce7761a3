//! The tests of the server as a process, in one program: it is linked once, and its tests wait together.

mod cases;
mod cgi;
mod common;
mod config;
mod fastcgi;
mod garden;
mod http;
mod http2;
mod includes;
mod invalidation;
mod long_contents;
mod rights;
mod tls;
mod tunnels;
mod upgrade;
mod upstreams;
