//! A strict parser of Prometheus' text format 0.0.4: every scraper accepts a text that this parser accepts.

use std::collections::{BTreeMap, BTreeSet};

/// The name of a histogram, and the labels of one of its series without the bound of a bucket.
type Series<'a> = (&'a str, BTreeMap<String, String>);

/// A parsed text.
#[derive(Debug, Default)]
pub struct Metrics {
    samples: Vec<Sample>,
}

/// One number, with its name and labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

impl Metrics {
    /// Parses a text.
    ///
    /// # Errors
    ///
    /// A sentence about the first fault. A line may be malformed or repeated. A family may be in pieces,
    /// or have no help or type. A counter may not end in `_total`. The buckets of a histogram may not
    /// ascend, not end with `+Inf`, or disagree with its count.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.is_empty() && !text.ends_with('\n') {
            return Err("the last line does not end".to_owned());
        }
        let mut parsed = Self::default();
        let (mut family, mut kind) = (String::new(), String::new());
        let (mut families, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let fault = |what: &str| Err(format!("{what}: {line}"));
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, _) = help.split_once(' ').unwrap_or((help, ""));
                let of_type = format!("# TYPE {name} ");
                let Some(next) = lines.next().and_then(|next| next.strip_prefix(&of_type)) else {
                    return fault("no type behind the help");
                };
                if !is_name(name) || !families.insert(name.to_owned()) {
                    return fault("a malformed or repeated family");
                }
                if !["counter", "gauge", "histogram"].contains(&next) {
                    return fault("an unknown type");
                }
                if (next == "counter") != name.ends_with("_total") {
                    return fault("counters, and they alone, end in _total");
                }
                (family, kind) = (name.to_owned(), next.to_owned());
                continue;
            }
            let sample = sample(line)?;
            let suffix = sample.name.strip_prefix(&family);
            let is_of_family = match &kind[..] {
                "histogram" => {
                    suffix.is_some_and(|suffix| ["_bucket", "_sum", "_count"].contains(&suffix))
                }
                "" => false,
                _ => suffix == Some(""),
            };
            if !is_of_family {
                return fault("a sample outside of its family");
            }
            if !seen.insert((sample.name.clone(), sample.labels.clone())) {
                return fault("a repeated sample");
            }
            if kind != "gauge" && !sample.value.is_finite() || sample.value < 0.0 {
                return fault("an impossible value");
            }
            parsed.samples.push(sample);
        }
        parsed.check_histograms()?;
        Ok(parsed)
    }

    /// All samples in order.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// The samples with a name and at least these labels.
    pub fn all<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| {
            let has = |(label, value): &(&str, &str)| {
                sample.labels.get(*label).is_some_and(|other| other == value)
            };
            sample.name == name && labels.iter().all(has)
        })
    }

    /// The sum of their values.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.all(name, labels).map(|sample| sample.value).sum()
    }

    fn check_histograms(&self) -> Result<(), String> {
        let mut buckets: BTreeMap<Series<'_>, Vec<(f64, f64)>> = BTreeMap::new();
        for sample in &self.samples {
            let Some(name) = sample.name.strip_suffix("_bucket") else { continue };
            let mut labels = sample.labels.clone();
            let bound = match labels.remove("le").as_deref() {
                Some("+Inf") => f64::INFINITY,
                Some(text) => text.parse().map_err(|_| format!("a bound of {name}: {text}"))?,
                None => return Err(format!("a bucket of {name} without a bound")),
            };
            buckets.entry((name, labels)).or_default().push((bound, sample.value));
        }
        for ((name, labels), buckets) in buckets {
            let ascends = buckets.is_sorted_by(|one, other| one.0 < other.0 && one.1 <= other.1);
            let exact = |suffix: &str| {
                let name = format!("{name}{suffix}");
                let mut of_name = self.samples.iter().filter(|sample| sample.name == name);
                of_name.find(|sample| sample.labels == labels).map(|sample| sample.value)
            };
            let last = buckets.last().copied();
            if !ascends
                || exact("_sum").is_none()
                || last.map(|(bound, count)| (bound, Some(count)))
                    != Some((f64::INFINITY, exact("_count")))
            {
                return Err(format!("the histogram {name} {labels:?}: {buckets:?}"));
            }
        }
        Ok(())
    }
}

/// `name value` or `name{label="value",...} value`.
fn sample(line: &str) -> Result<Sample, String> {
    let fault = || format!("malformed: {line}");
    let end = line.find(['{', ' ']).ok_or_else(fault)?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, value) = rest.split_once("=\"").ok_or_else(fault)?;
            let (value, behind) = quoted(value).ok_or_else(fault)?;
            if !is_name(label)
                || label.contains(':')
                || labels.insert(label.into(), value).is_some()
            {
                return Err(fault());
            }
            if let Some(behind) = behind.strip_prefix('}') {
                rest = behind;
                break;
            }
            rest = behind.strip_prefix(',').ok_or_else(fault)?;
        }
    }
    let value = rest.strip_prefix(' ').ok_or_else(fault)?;
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit() || b"+-.e".contains(&byte));
    let value = value.parse().ok().filter(|_| is_number).ok_or_else(fault)?;
    is_name(name).then(|| Sample { name: name.into(), labels, value }).ok_or_else(fault)
}

/// The value up to its quote, and the text after the quote.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut chars) = (String::new(), text.char_indices());
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                char @ ('\\' | '"') => char,
                _ => return None,
            }),
            char => value.push(char),
        }
    }
    None
}

/// `[a-zA-Z_:][a-zA-Z0-9_:]*`
fn is_name(text: &str) -> bool {
    let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || byte == b':';
    text.bytes().next().is_some_and(is_first)
        && text.bytes().all(|byte| is_first(byte) || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
# HELP a_total Something.
# TYPE a_total counter
a_total{x=\"1\",y=\"a\\\"b\\\\\\n\"} 3
a_total{x=\"2\"} 4
# HELP b Another.
# TYPE b histogram
b_bucket{le=\"0.5\"} 1
b_bucket{le=\"+Inf\"} 3
b_sum 1.25
b_count 3
";

    #[test]
    fn a_text_is_parsed() {
        let metrics = Metrics::parse(GOOD).unwrap();
        assert_eq!(metrics.samples().len(), 6);
        assert_eq!(metrics.sum("a_total", &[]), 7.0);
        assert_eq!(metrics.sum("a_total", &[("x", "2")]), 4.0);
        assert_eq!(metrics.samples()[0].labels["y"], "a\"b\\\n");
    }

    #[test]
    fn faults_are_found() {
        for (old, new) in [
            ("b_count 3\n", "b_count 3"),
            ("b_count 3", "b_count 2"),
            ("b_count 3\n", ""),
            ("b_sum 1.25\n", ""),
            ("le=\"0.5\"} 1", "le=\"0.5\"} 4"),
            ("le=\"+Inf\"", "le=\"1\""),
            ("le=\"0.5\"", "lt=\"0.5\""),
            ("x=\"2\"", "x=\"1\",y=\"a\\\"b\\\\\\n\""),
            ("x=\"2\"", "x=\"2\",x=\"2\""),
            ("x=\"2\"", "2x=\"2\""),
            ("x=\"2\"", "x=\"\\2\""),
            ("x=\"2\"", "x=2"),
            ("a_total{x=\"2\"}", "a{x=\"2\"}"),
            ("a_total{x=\"2\"}", "b_sum"),
            ("} 4", "} 4 "),
            ("} 4", "} inf"),
            ("} 4", "} -4"),
            ("} 4", "}"),
            ("# TYPE b histogram\n", ""),
            ("# HELP b Another", "# HELP a_total Another"),
            ("counter", "gauge"),
            ("counter", "summary"),
        ] {
            let bad = GOOD.replace(old, new);
            assert!(bad != GOOD, "{old}");
            assert!(Metrics::parse(&bad).is_err(), "{bad}");
        }
    }
}
