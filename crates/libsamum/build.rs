//! The library's name for the dynamic linker: programs that are linked with it need this one. It ends with
//! the version of `samum.h`, which changes when a program has to be compiled anew.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsamum.so.0");
}
