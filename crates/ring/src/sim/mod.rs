//! stub
#![allow(missing_docs, clippy::all)]
use std::rc::Rc;
#[derive(Clone, Debug)] pub struct World(#[allow(dead_code)] Rc<()>);
#[derive(Clone, Debug)] pub struct Config;
#[derive(Debug)] pub struct Peer;
impl Config { pub fn new(_: u64) -> Self { Self } }
impl World { pub fn new(_: Config) -> Self { unimplemented!() } pub fn connect(&self) -> Peer { unimplemented!() }
 pub fn write_file(&self, _: &str, _: &[u8]) {} pub fn make_dir(&self, _: &str) {} pub fn symlink(&self, _: &str, _: &str) {}
 pub fn rename(&self, _: &str, _: &str) {} pub fn remove(&self, _: &str) {} pub fn evict(&self, _: &str) {} }
impl Peer { pub fn send(&self, _: &[u8]) {} pub fn take(&self) -> Vec<u8> { vec![] } pub fn set_read_rate(&self, _: Option<u64>) {} pub fn stop_reading(&self) {} pub fn shutdown_write(&self) {} pub fn close(&self) {} pub fn reset(&self) {} }
impl crate::Ring { pub fn simulated(_: &World) -> Self { unimplemented!() } pub fn sim_listener(&self, _: &World) -> crate::Fd { unimplemented!() } pub fn sim_root(&self, _: &World) -> crate::Fd { unimplemented!() } }
