//! Draws the pictures of `examples/site`: dunes at dusk while a samum blows.
//!
//! One file without dependencies, compiled by `make-site.sh` with plain `rustc`. Everything is
//! computed from the constants below, so two runs give the same bytes.
//!
//! ```text
//! dunes svg      the still picture as SVG, to standard output
//! dunes frames   the film: WIDTH x HEIGHT raw RGB24, FRAMES of them, to standard output
//! ```
//!
//! The film loops without a seam: everything that moves, moves by a whole number of its own periods in
//! FRAMES frames.

use std::f32::consts::TAU;
use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};

const WIDTH: usize = 960;
const HEIGHT: usize = 540;
/// 12 seconds at the 24 frames per second that make-site.sh tells ffmpeg.
const FRAMES: usize = 288;

const SKY: [Rgb; 3] = [Rgb(52.0, 44.0, 84.0), Rgb(196.0, 104.0, 92.0), Rgb(250.0, 196.0, 120.0)];
const SUN: Rgb = Rgb(255.0, 232.0, 180.0);
const SAND: Rgb = Rgb(246.0, 208.0, 150.0);
const SUN_CENTRE: (f32, f32) = (0.70, 0.40);
const SUN_RADIUS: f32 = 0.085;

/// From the farthest to the nearest.
const RIDGES: [Ridge; 4] = [
    Ridge {
        base: 0.56,
        swell: 0.020,
        period: 0.50,
        turn: 0.3,
        lit: Rgb(214.0, 138.0, 104.0),
        shade: Rgb(168.0, 100.0, 92.0),
    },
    Ridge {
        base: 0.64,
        swell: 0.034,
        period: 0.75,
        turn: 2.1,
        lit: Rgb(204.0, 118.0, 76.0),
        shade: Rgb(138.0, 76.0, 70.0),
    },
    Ridge {
        base: 0.74,
        swell: 0.050,
        period: 1.00,
        turn: 4.4,
        lit: Rgb(182.0, 94.0, 56.0),
        shade: Rgb(102.0, 52.0, 52.0),
    },
    Ridge {
        base: 0.88,
        swell: 0.062,
        period: 1.50,
        turn: 1.2,
        lit: Rgb(140.0, 66.0, 42.0),
        shade: Rgb(62.0, 32.0, 40.0),
    },
];

fn main() -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match std::env::args().nth(1).as_deref() {
        Some("svg") => out.write_all(svg().as_bytes())?,
        Some("frames") => {
            let grains = grains();
            let mut pixels = vec![0_u8; WIDTH * HEIGHT * 3];
            for frame in 0..FRAMES {
                draw(frame as f32 / FRAMES as f32, &grains, &mut pixels);
                out.write_all(&pixels)?;
            }
        }
        _ => {
            eprintln!("usage: dunes svg|frames");
            std::process::exit(2);
        }
    }
    out.flush()
}

/// A line of dunes. Lengths are in picture heights, so that a ridge looks alike at any size.
struct Ridge {
    /// Its mean height, from the top.
    base: f32,
    swell: f32,
    /// Its period in picture heights. In one film it moves by two periods.
    period: f32,
    turn: f32,
    lit: Rgb,
    shade: Rgb,
}

impl Ridge {
    /// The height of the crest at `x`, from the top.
    fn crest(&self, x: f32) -> f32 {
        let turn = x / (2.0 * self.period) * TAU;
        // 1 - |sin| has the sharp crests of dunes; the others break the regularity.
        let sharp = 1.0 - (turn + self.turn).sin().abs();
        let soft = (2.0 * turn + 2.7 * self.turn).sin() * 0.30;
        let fine = (4.0 * turn + 1.3 * self.turn).sin() * 0.10;
        self.base - self.swell * (1.6 * sharp + soft + fine)
    }
}

#[derive(Clone, Copy)]
struct Rgb(f32, f32, f32);

impl Rgb {
    fn mix(self, other: Rgb, share: f32) -> Rgb {
        let share = share.clamp(0.0, 1.0);
        let keep = 1.0 - share;
        Rgb(
            self.0 * keep + other.0 * share,
            self.1 * keep + other.1 * share,
            self.2 * keep + other.2 * share,
        )
    }

    fn hex(self) -> String {
        format!("#{:02x}{:02x}{:02x}", self.0 as u8, self.1 as u8, self.2 as u8)
    }
}

/// One flying grain, seen as a streak.
struct Grain {
    /// Start and travel per film, in picture widths; the travel is a whole number.
    x: f32,
    travel: f32,
    y: f32,
    length: usize,
    light: f32,
    sway: f32,
}

fn grains() -> Vec<Grain> {
    let mut random = Random(0x5a4d_554d);
    (0..420)
        .map(|_| {
            // Near grains fly lower, faster, and look longer.
            let near = random.unit();
            Grain {
                x: random.unit(),
                travel: 3.0 + (near * 4.0).floor(),
                y: 0.46 + 0.50 * (0.35 * random.unit() + 0.65 * near),
                length: 8 + (near * 34.0) as usize,
                light: 0.10 + 0.26 * random.unit(),
                sway: random.unit() * TAU,
            }
        })
        .collect()
}

/// Draws the moment `time` (0 to 1, one film) into `pixels`.
fn draw(time: f32, grains: &[Grain], pixels: &mut [u8]) {
    let height = HEIGHT as f32;
    for column in 0..WIDTH {
        let x = column as f32 / height;
        let crests = RIDGES.each_ref().map(|ridge| ridge.crest(x + 2.0 * ridge.period * time));
        for row in 0..HEIGHT {
            let y = row as f32 / height;
            let mut colour = sky(x, y);
            for (index, (ridge, crest)) in RIDGES.iter().zip(crests).enumerate() {
                let near = (index + 1) as f32;
                if y >= crest {
                    // The side that faces the sun is lit, and depth darkens it. The edge between
                    // the two sides leaves the crest at a slant.
                    let depth = y - crest;
                    let at = x + 2.0 * ridge.period * time + 0.8 * depth;
                    let slope = ridge.crest(at + 0.004) - ridge.crest(at);
                    let facing = (0.5 - slope * 90.0).clamp(0.15, 1.0);
                    colour = ridge.shade.mix(ridge.lit, facing - depth / 0.40);
                    // One pixel of softness at the edge.
                    let edge = ((y - crest) * height).clamp(0.0, 1.0);
                    colour = SAND.mix(colour, 0.55 + 0.45 * edge);
                } else {
                    // Sand torn off the crest: thick at the crest, thinner above it, in gusts.
                    let above = (crest - y) / (0.030 + 0.014 * near);
                    if above < 4.0 {
                        let gust = noise(x * (7.0 - near), near * 9.0 + y * 5.0, time, 2 + index);
                        colour = colour.mix(SAND, (1.1 * gust - 0.25).max(0.0) * (-above).exp());
                    }
                }
            }
            // The storm's veil over everything, thicker towards the ground.
            let veil = noise(x * 1.6 + y * 1.2, y * 3.0, time, 3);
            colour = colour.mix(SAND, 0.38 * veil * ((y - 0.25) * 1.5).clamp(0.0, 1.0));
            put(pixels, column, row, colour);
        }
    }
    for grain in grains {
        let head = (grain.x + grain.travel * time).fract() * WIDTH as f32;
        let y = grain.y * height + (grain.sway + TAU * time * 2.0).sin() * 5.0;
        for step in 0..grain.length {
            let column = (head as usize + WIDTH - step) % WIDTH;
            let row = (y + step as f32 * 0.06) as usize;
            if row < HEIGHT {
                let fade = 1.0 - step as f32 / grain.length as f32;
                let under = get(pixels, column, row);
                put(pixels, column, row, under.mix(SUN, grain.light * fade));
            }
        }
    }
}

fn sky(x: f32, y: f32) -> Rgb {
    let down = y / 0.58;
    let mut colour = if down < 0.6 {
        SKY[0].mix(SKY[1], down / 0.6)
    } else {
        SKY[1].mix(SKY[2], (down - 0.6) / 0.4)
    };
    let (sun_x, sun_y) = (SUN_CENTRE.0 * WIDTH as f32 / HEIGHT as f32, SUN_CENTRE.1);
    let away = ((x - sun_x).powi(2) + (y - sun_y).powi(2)).sqrt();
    colour = colour.mix(SUN, 0.55 * (-(away - SUN_RADIUS).max(0.0) * 6.0).exp());
    let disc = ((SUN_RADIUS - away) * HEIGHT as f32 + 0.5).clamp(0.0, 1.0);
    colour.mix(SUN, disc)
}

/// Smooth noise, 0 to 1, that moves `cycles` times its period to the left in one film.
fn noise(x: f32, y: f32, time: f32, cycles: usize) -> f32 {
    const PERIOD: usize = 8;
    let x = x + 64.0 - time * (cycles * PERIOD) as f32 + (cycles * PERIOD) as f32;
    let (cell_x, cell_y) = (x.floor(), y.floor());
    let (inner_x, inner_y) = (smooth(x - cell_x), smooth(y - cell_y));
    let corner = |right: usize, down: usize| {
        let column = (cell_x as usize + right) % PERIOD;
        Random((column * 7919 + (cell_y as usize + down) * 104_729) as u64).unit()
    };
    let upper = corner(0, 0) + (corner(1, 0) - corner(0, 0)) * inner_x;
    let lower = corner(0, 1) + (corner(1, 1) - corner(0, 1)) * inner_x;
    upper + (lower - upper) * inner_y
}

fn smooth(t: f32) -> f32 {
    t * t * (3.0 - 2.0 * t)
}

fn put(pixels: &mut [u8], column: usize, row: usize, colour: Rgb) {
    let at = (row * WIDTH + column) * 3;
    pixels[at..at + 3].copy_from_slice(&[colour.0 as u8, colour.1 as u8, colour.2 as u8]);
}

fn get(pixels: &[u8], column: usize, row: usize) -> Rgb {
    let at = (row * WIDTH + column) * 3;
    Rgb(f32::from(pixels[at]), f32::from(pixels[at + 1]), f32::from(pixels[at + 2]))
}

fn svg() -> String {
    const SCALE: f32 = 600.0;
    const STEP: f32 = 10.0;
    let (width, height) = (SCALE * 16.0 / 9.0, SCALE);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         preserveAspectRatio=\"xMidYMid slice\">\n<title>Dunes in a samum</title>\n<defs>\n\
         <linearGradient id=\"sky\" x2=\"0\" y2=\"1\"><stop stop-color=\"{}\"/><stop offset=\".35\" \
         stop-color=\"{}\"/><stop offset=\".58\" stop-color=\"{}\"/></linearGradient>\n\
         <radialGradient id=\"glow\"><stop offset=\".2\" stop-color=\"{sun}\" stop-opacity=\".7\"/>\
         <stop offset=\".5\" stop-color=\"{sun}\" stop-opacity=\".2\"/><stop offset=\"1\" stop-color=\"{sun}\" stop-opacity=\"0\"/></radialGradient>\n",
        SKY[0].hex(),
        SKY[1].hex(),
        SKY[2].hex(),
        sun = SUN.hex(),
    );
    for (index, ridge) in RIDGES.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<linearGradient id=\"r{index}\" x2=\"0\" y2=\"1\"><stop stop-color=\"{}\"/>\
             <stop offset=\"1\" stop-color=\"{}\"/></linearGradient>",
            ridge.lit.hex(),
            ridge.shade.hex(),
        );
    }
    let (sun_x, sun_y) = (SUN_CENTRE.0 * width, SUN_CENTRE.1 * height);
    let _ = writeln!(
        svg,
        "</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"url(#sky)\"/>\n\
         <circle cx=\"{sun_x:.0}\" cy=\"{sun_y:.0}\" r=\"{:.0}\" fill=\"url(#glow)\"/>\n\
         <circle cx=\"{sun_x:.0}\" cy=\"{sun_y:.0}\" r=\"{:.0}\" fill=\"{}\"/>",
        SUN_RADIUS * height * 5.0,
        SUN_RADIUS * height,
        SUN.hex(),
    );
    let mut random = Random(7);
    for (index, ridge) in RIDGES.iter().enumerate() {
        let mut path = format!("M0 {height:.0}");
        let mut x = 0.0;
        while x <= width + STEP {
            let _ = write!(path, "L{x:.0} {:.1}", ridge.crest(x / SCALE) * SCALE);
            x += STEP;
        }
        let _ = writeln!(svg, "<path d=\"{path}V{height:.0}z\" fill=\"url(#r{index})\"/>");
        // Wind: long flat curves that leave the crest.
        let mut wind = String::new();
        for _ in 0..26 {
            let x = random.unit() * width * 1.1 - 0.1 * width;
            let length = 60.0 + random.unit() * 220.0;
            let y = ridge.crest(x / SCALE) * SCALE - 14.0 + random.unit() * 46.0;
            let lift = length * (0.03 + 0.05 * random.unit());
            let _ = write!(
                wind,
                "M{x:.0} {y:.0}q{:.0} {:.0} {length:.0} {:.0}",
                length / 2.0,
                -lift,
                -lift / 3.0,
            );
        }
        let _ = writeln!(
            svg,
            "<path d=\"{wind}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{:.1}\" \
             stroke-linecap=\"round\" opacity=\"{:.2}\"/>",
            SAND.hex(),
            0.6 + 0.30 * index as f32,
            0.30 + 0.03 * index as f32,
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// splitmix64, enough for a picture.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1_u64 << 24) as f32
    }
}
