//! A browser and samum's own TCP.

use std::fs;
use std::process::Command;

use testkit::{Tree, or_skip, tether};

use crate::net::{Frames, Net, V4};
use crate::tls::certify;
use crate::{on_all_ways_and_where_frames_are_lost, path};

/// Loads the page of the site in a frame, then seeks in its video, and says in its own title what came of it.
const SCRIPT: &str = r#"<!doctype html><title>loading</title><iframe src="/index.html"></iframe><script>
const frame = document.querySelector('iframe');
const say = text => { document.title = text; };
frame.onload = () => {
    const page = frame.contentDocument;
    const images = [...page.images].filter(image => !image.naturalWidth).length;
    const styles = [...page.styleSheets].filter(sheet => !sheet.cssRules.length).length;
    const video = document.createElement('video');
    video.muted = true;
    video.preload = 'auto';
    video.onerror = () => say('error ' + video.error.message);
    video.onloadedmetadata = () => { video.currentTime = video.duration * 0.9; };
    video.onseeked = () => say('missing ' + (images + styles) + ', seeked '
        + Math.round(100 * video.currentTime / video.duration) + ', wide ' + video.videoWidth);
    video.src = page.querySelector('video').src;
};
</script>"#;

/// The page when its scripts have run; the error says why there is no browser.
fn dump(url: &str) -> Result<String, String> {
    let profile = Tree::new();
    let mut command = Command::new("chromium");
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
    ]);
    // Of the tests over TLS, whose certificate nobody has signed.
    command.arg("--ignore-certificate-errors");
    command.args(["--autoplay-policy=no-user-gesture-required", "--virtual-time-budget=20000"]);
    command.args([&format!("--user-data-dir={}", path(&profile)), "--dump-dom", url]);
    let output = tether(&mut command).output().map_err(|error| format!("chromium: {error}"))?;
    assert!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout).unwrap())
}

/// The site of the examples, with a page that seeks in its video.
fn site() -> Tree {
    let site = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/site");
    let tree = Tree::new();
    for entry in fs::read_dir(site).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), tree.path().join(entry.file_name())).unwrap();
        }
    }
    tree.write("seek.html", SCRIPT.as_bytes().to_vec());
    tree
}

/// Loads the page, and checks what its scripts say.
fn check(net: &Net, scheme: &str) -> Result<(), String> {
    let mut page = String::new();
    // The browser's clock stands still for requests, but not while it decodes: on a busy machine it may end first.
    for _ in 0..3 {
        page = net.as_client(|| dump(&format!("{scheme}://{V4}:80/seek.html")))?;
        if !page.contains("<title>loading</title>") {
            break;
        }
    }
    assert!(page.contains("<title>missing 0, seeked 90, wide 960</title>"), "{page}");
    Ok(())
}

#[test]
fn chromium_loads_the_example_and_seeks_in_its_video() {
    let tree = site();
    on_all_ways_and_where_frames_are_lost(|net| {
        let _server = net.serve(path(&tree), &[]);
        or_skip!(check(net, "http"));
    });
}

#[test]
fn chromium_loads_the_example_over_tls() {
    let (tree, pair) = (site(), Tree::new());
    let tls = certify(&pair);
    for frames in [Frames::Auto, Frames::Packet] {
        let net = or_skip!(Net::new(frames));
        let _server = net.serve(path(&tree), &["--tls", &tls]);
        or_skip!(check(&net, "https"));
    }
}
