//! FastCGI applications behind a real server, on both drivers: php-fpm, and a scripted one that does what an
//! application should not.

pub(crate) mod application;
mod faults;
mod hand_over;
mod php;
pub(crate) mod stage;
mod uploads;
