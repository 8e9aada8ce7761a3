//! The abilities of each version of Landlock. Pure.

/// The version of Landlock's interface in the kernel that runs; 0 if the kernel has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support(i32);

/// The abilities that the server uses: the first version of Landlock with the ability, and the version of Linux.
const USES: [(i32, &str, &str); 4] = [
    (1, "5.13", "keep the server from files"),
    (3, "6.2", "keep it from cutting files"),
    (5, "6.10", "keep it from commands to devices"),
    (6, "6.12", "keep programs from signals to the server"),
];

impl Support {
    /// The support in a kernel with this version.
    #[must_use]
    pub const fn of(version: i32) -> Self {
        Self(version)
    }

    /// Returns true if the kernel can keep processes from files.
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.0 > 0
    }

    /// The version.
    #[must_use]
    pub const fn version(self) -> i32 {
        self.0
    }

    /// A sentence about what the kernel cannot do; `None` if it can do all that the server uses.
    #[must_use]
    pub fn lacks(self) -> Option<String> {
        if !self.is_some() {
            return Some(
                "this kernel has no Landlock (Linux 5.13 has it, if `lsm=` of its command line does not leave it out)"
                    .to_owned(),
            );
        }
        let lacks: Vec<_> = USES.iter().filter(|(version, ..)| *version > self.0).collect();
        let (_, linux, _) = lacks.last()?;
        let what: Vec<_> = lacks.iter().map(|(_, _, what)| *what).collect();
        Some(format!(
            "the Landlock of this kernel cannot {} (Linux {linux} can)",
            what.join(", or ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_lacks_is_said() {
        for (version, lacks, not) in [
            (0, Some("this kernel has no Landlock"), "cannot"),
            (-1, Some("this kernel has no Landlock"), "cannot"),
            (
                1,
                Some(
                    "cutting files, or keep it from commands to devices, or keep programs from signals",
                ),
                "keep the server from files",
            ),
            (2, Some("cutting files"), "has no Landlock"),
            (4, Some("cannot keep it from commands to devices, or"), "cutting"),
            (
                5,
                Some("cannot keep programs from signals to the server (Linux 6.12 can)"),
                "devices",
            ),
            (6, None, ""),
            (7, None, ""),
            (99, None, ""),
        ] {
            let support = Support::of(version);
            assert_eq!(support.is_some(), version > 0);
            match (support.lacks(), lacks) {
                (Some(text), Some(lacks)) => {
                    assert!(text.contains(lacks) && !text.contains(not), "{version}: {text}");
                }
                (found, lacks) => assert_eq!(found.is_some(), lacks.is_some(), "{version}"),
            }
        }
    }
}
