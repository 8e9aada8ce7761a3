use super::*;

const MOUNTINFO: &[u8] = b"\
21 27 0:20 / /proc rw,nosuid shared:12 - proc proc rw
27 1 254:0 / / rw,noatime - ext4 /dev/vda rw
45 27 0:39 / /data rw,relatime shared:7 master:3 - btrfs /dev/vdb rw,space_cache=v2,subvolid=5,subvol=/
46 27 0:39 /one /one rw - btrfs /dev/vdb rw,subvol=/one
47 27 0:43 / /merged rw,relatime - overlay overlay rw,lowerdir=/data/low:/data/low2,upperdir=/one/up,workdir=/one/w
48 27 0:44 / /mixed rw - overlay overlay ro,lowerdir=/data/low:/low
49 27 0:45 / /plain rw - overlay overlay rw,lowerdir+=/low,datadir+=/low/data,upperdir=/up\\040\\054
50 27 0:46 / /hidden rw - overlay overlay ro,lowerdir=/data/low:/gone
51 27 0:47 / /relative rw - overlay overlay ro,lowerdir=low
52 27 0:48 / /stacked rw - overlay overlay ro,lowerdir=/merged/a::/data/low
53 27 0:50 / /nfs rw - nfs4 server:/ rw,addr=10.0.0.1
54 27 0:51 / /torn rw - overlay overlay
55 27 x:51 / /torn rw - btrfs none rw
56 27 0:52 / /self rw - overlay overlay ro,lowerdir=/self
57 27 7:0 / /v1 ro - squashfs /dev/loop0 ro
";

fn at(dev: (u32, u32), mount: u64) -> FileLocation {
    FileLocation { dev, mount: Some(mount), has_birth: true }
}

fn look(path: &[u8]) -> Option<FileLocation> {
    Some(match path {
        b"/data/low" | b"/data/low2" => at((0, 41), 45),
        b"/one/up" => at((0, 42), 46),
        b"/low" | b"/low/data" | b"/up ," | b"low" => at((254, 0), 27),
        b"/merged/a" => at((0, 43), 47),
        b"/self" => at((0, 52), 56),
        _ => return None,
    })
}

fn found(dev: (u32, u32), mount: u64) -> Option<(u64, u64)> {
    behind(MOUNTINFO, at(dev, mount), DEPTH_MAX, &look).and_then(Device::numbers)
}

#[test]
fn subvolumes_and_mounts_of_a_btrfs_are_its_superblock() {
    for (minor, mount) in [(39, 45), (41, 45), (42, 46)] {
        assert_eq!(found((0, minor), mount), Some((0, 39)));
    }
}

#[test]
fn an_overlay_is_the_one_device_of_its_layers() {
    assert_eq!(found((0, 43), 47), Some((0, 39)), "subvolumes of one btrfs");
    assert_eq!(found((0, 45), 49), Some((254, 0)), "options one by one, escaped");
    assert_eq!(found((0, 48), 52), Some((0, 39)), "an overlay among its layers");
}

#[test]
fn what_is_not_known_stays_as_it_is() {
    for (minor, mount, why) in [
        (44, 48, "two devices"),
        (46, 50, "a layer that is not visible"),
        (47, 51, "a relative path"),
        (50, 53, "another file system"),
        (51, 54, "no options"),
        (51, 55, "no number"),
        (60, 60, "no such mount"),
    ] {
        assert_eq!(found((0, minor), mount), None, "{why}");
    }
    assert_eq!(found((0, 52), 56), Some((0, 52)), "a layer of itself");
    let nowhere = FileLocation { dev: (0, 39), mount: None, has_birth: true };
    assert_eq!(behind(MOUNTINFO, nowhere, DEPTH_MAX, &look), None);
    let device = |place: FileLocation| place.site().map(|site| site.device);
    assert_eq!(device(nowhere), Some(Device::of(39)), "there is nothing to learn");
    assert_eq!(device(at((254, 1), u64::MAX)), Some(Device::of(254 << 32 | 1)), "a block device");
    assert_eq!(device(at((0, 1), u64::MAX)), None, "to be learned");
}

#[test]
fn a_file_without_a_time_of_birth_is_of_an_image_where_the_type_does_not_deny_it() {
    let unborn = |mount| FileLocation { has_birth: false, ..at((254, 0), mount) };
    for (mount, expected) in [(27, false), (53, false), (57, true), (48, true), (60, true)] {
        let may_be_image = may_be_image(MOUNTINFO, unborn(mount));
        assert_eq!(may_be_image, expected, "{mount}");
        let known = Mount { may_be_image, ..Mount::UNKNOWN };
        assert_eq!(unborn(mount).on(known).from_image, expected, "{mount}");
        assert!(!at((254, 0), mount).on(known).from_image, "{mount}: it has a time of birth");
    }
    assert_eq!(unborn(u64::MAX).site(), None, "to be learned");
    let nowhere = FileLocation { mount: None, ..unborn(0) };
    assert!(nowhere.site().unwrap().from_image, "it cannot be learned");
}

/// As Linux 6.18 shows `lowerdir=/tmp/x\,\:\\y z/q:/up`.
#[test]
fn names_of_layers_are_unescaped_twice() {
    let line = br"50 27 0:46 / /m rw - overlay overlay ro,lowerdir=/tmp/x\134\054\134:\134\134y\040z/q:/up,redirect_dir=on";
    let layers = parse::find(line, 50).unwrap().layers();
    assert_eq!(layers, [br"/tmp/x,:\y z/q".to_vec(), b"/up".to_vec()]);
    let line = br"50 27 0:46 / /m rw - overlay overlay lowerdir=\04:\999:\400:\";
    let layers = parse::find(line, 50).unwrap().layers();
    assert_eq!(layers, [b"04".to_vec(), b"999".to_vec(), b"400".to_vec()], "no octal numbers");
}

/// Any table gives a result, with no bytes that were not in the table.
#[test]
fn any_table_can_be_read() {
    let mut random = testkit::Random::new(1);
    let mut below = |bound: usize| random.below(bound);
    let signs = b" \n:,=-\\01234567/ab\xff\0";
    for _ in 0..20_000 {
        let mut table = MOUNTINFO.to_vec();
        for _ in 0..=below(20) {
            let place = below(table.len());
            match below(3) {
                0 => table[place] = signs[below(signs.len())],
                1 => table.insert(place, signs[below(signs.len())]),
                _ => drop(table.remove(place)),
            }
        }
        table.truncate(below(4 * table.len()));
        for id in 45..58 {
            let Some(mount) = parse::find(&table, id) else { continue };
            let layers: usize = mount.layers().iter().map(Vec::len).sum();
            assert!(layers <= table.len());
            assert!(mount.layers().iter().all(|layer| look(layer).is_none() || !layer.is_empty()));
            behind(&table, at((0, 39), id), DEPTH_MAX, &look);
        }
    }
}

#[test]
fn network_file_systems_do_not_keep_attributes() {
    let keeps = |dev, mount| {
        let behind = found(dev, mount).map(|(major, minor)| Device::of(major << 32 | minor));
        keeps_attributes(MOUNTINFO, at(dev, mount), behind)
    };
    assert!(keeps((0, 39), 45), "btrfs");
    assert!(keeps((0, 45), 49), "an overlay on a block device");
    assert!(!keeps((0, 44), 48), "an overlay on two devices");
    assert!(!keeps((0, 50), 53), "nfs4");
    assert!(!keeps((0, 60), 60), "no such mount");
    assert!(at((254, 0), 27).keeps_attributes(), "a block device");
    assert!(!at((0, 50), 4_000_000).keeps_attributes(), "not learned yet");
}
