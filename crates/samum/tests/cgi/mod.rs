//! CGI programs (RFC 3875) behind a real server, on both drivers: shell scripts that do what programs should do, and
//! what they should not.

mod git;
mod limits;
mod processes;
mod requests;
mod responses;
mod stage;
mod uploads;
