//! Sets the library's name for the dynamic linker (soname). The name ends with the version of `samum.h`. The
//! version changes when programs have to be compiled anew.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsamum.so.0");
}
