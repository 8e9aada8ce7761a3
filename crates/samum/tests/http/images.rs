//! Releases as images of file systems: files of two of them have the same numbers and times.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use testkit::{Image, Skip, Subvolumes, Tree, or_skip};

use crate::common::{SOON, ask, on_both_drivers, serve, wait_until};

/// An image whose file `a` has this many of these bytes.
fn image(byte: u8, len: usize) -> Result<Image, Skip> {
    Image::new(|files| fs::write(files.join("a"), vec![byte; len]).unwrap())
}

/// `ln -sfn`
fn switch(link: &Path, to: &Path) {
    let new = link.with_extension("new");
    symlink(to, &new).unwrap();
    fs::rename(new, link).unwrap();
}

#[test]
fn a_client_of_another_release_is_sent_the_whole_file() {
    let [one, two] = [or_skip!(image(b'a', 100_000)), or_skip!(image(b'b', 100_000))];
    let tree = Tree::new().directory("m1").directory("m2").directory("o1").directory("o2");
    let [m1, m2, o1, o2] = ["m1", "m2", "o1", "o2"].map(|name| tree.path().join(name));
    let [one, two] = [or_skip!(one.mount(&m1)), or_skip!(two.mount(&m2))];
    let _overlays = [or_skip!(one.overlay(&o1)), or_skip!(two.overlay(&o2))];
    on_both_drivers(|driver| {
        for [before, after] in [[&m1, &m2], [&o1, &o2]] {
            let link = tree.path().join("current");
            switch(&link, before);
            let server = serve(driver, &link, &[]);
            let old = ask(&server, "GET /a");
            assert_eq!(old.header("ETag"), None, "{}", before.display());
            let date = old.header("Last-Modified").unwrap().to_owned();
            let head = format!("GET /a\nRange: bytes=2-4\nIf-Range: {date}");
            assert_eq!(ask(&server, &head).status, 200);
            assert_eq!(ask(&server, &format!("GET /a\nIf-Modified-Since: {date}")).status, 304);
            switch(&link, after);
            assert!(wait_until(SOON, || ask(&server, "GET /a").body[0] == b'b'));
            let whole = ask(&server, &head);
            assert_eq!((whole.status, whole.body), (200, vec![b'b'; 100_000]));
        }
    });
}

#[test]
fn the_tag_of_contents_is_that_of_the_image_which_is_mounted() {
    for len in [10, 300_000] {
        let images = [or_skip!(image(b'a', len)), or_skip!(image(b'b', len))];
        let tree = Tree::new().directory("m");
        let place = tree.path().join("m");
        let server = serve("auto", tree.path(), &["--etag", "hash"]);
        let tag_of = |image: &Image, byte: u8| {
            let mounted = image.mount(&place)?;
            let mut tag = None;
            assert!(wait_until(SOON, || {
                let response = ask(&server, "GET /m/a");
                tag = response.header("ETag").map(str::to_owned);
                tag.is_some() && response.body.first() == Some(&byte)
            }));
            Ok::<_, Skip>((mounted, tag))
        };
        let (mounted, one) = or_skip!(tag_of(&images[0], b'a'));
        // The same loop device is the next one's. The server keeps an open file for 30 s.
        assert!(wait_until(4 * SOON, || mounted.unmount().is_ok()));
        let (_mounted, two) = or_skip!(tag_of(&images[1], b'b'));
        assert_ne!(one, two, "{len} bytes");
    }
}

/// Most containers serve from such overlays.
#[test]
fn a_file_on_an_overlay_of_directories_has_a_tag() {
    let volumes = or_skip!(Subvolumes::mount(|[one, _]| fs::write(one.join("a"), "a").unwrap()));
    on_both_drivers(|driver| {
        let server = serve(driver, volumes.path().join("both"), &[]);
        assert!(ask(&server, "GET /a").header("ETag").is_some());
    });
}
