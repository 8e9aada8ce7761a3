//! A certificate without an authority, for tests and local networks: clients warn of it, or are told its fingerprint.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use rcgen::{
    CertificateParams, DnType, DnValue, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType,
};
use rustls::pki_types::PrivateKeyDer;
use zeroize::{Zeroize, Zeroizing};

use crate::fault::{Cause, Fault};
use crate::pair::Pair;

/// Some clients accept no certificate that is valid for longer than 398 days.
const VALID: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// The clocks of clients may be late by this time.
const EARLIER: Duration = Duration::from_secs(60 * 60);
/// The last time with a year of four digits, less [`VALID`].
const NOW_MAX: u64 = 253_402_300_799 - VALID.as_secs();

impl Pair {
    /// Makes a key (ECDSA P-256), and a certificate for it that is valid for a year from `now`, in seconds since 1970; times
    /// before 1970 count as 1970. It is valid for the hosts `names`, in any form that a site's hosts have, and for
    /// `localhost`, `127.0.0.1` and `::1`. Both are only in memory.
    ///
    /// # Errors
    ///
    /// [`Cause::SelfSigned`] if a name is not ASCII, or the system has no random numbers.
    pub fn self_signed(names: &[String], now: i64) -> Result<Self, Fault> {
        let fault = |error: rcgen::Error| Fault::new(None, Cause::SelfSigned(error.to_string()));
        let mut params = CertificateParams::default();
        let own = [
            Ok(SanType::DnsName("localhost".try_into().map_err(fault)?)),
            Ok(SanType::IpAddress(Ipv4Addr::LOCALHOST.into())),
            Ok(SanType::IpAddress(Ipv6Addr::LOCALHOST.into())),
        ];
        for name in names.iter().map(|name| alternative_name(name)).chain(own) {
            let name = name.map_err(fault)?;
            if !params.subject_alt_names.contains(&name) {
                params.subject_alt_names.push(name);
            }
        }
        let common = DnValue::Utf8String("samum, self-signed".to_owned());
        params.distinguished_name.push(DnType::CommonName, common);
        let now = Duration::from_secs(u64::try_from(now).unwrap_or(0).min(NOW_MAX));
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        params.not_before = epoch + now.saturating_sub(EARLIER);
        params.not_after = epoch + now + VALID;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];

        let mut key =
            Zeroizing::new(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(fault)?);
        let certificate = params.self_signed(&*key).map_err(fault)?;
        let private = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let private = Zeroizing::new(private);
        key.zeroize();
        let chain = vec![certificate.der().clone()];
        Self::join(None, chain, None, &private)
    }
}

fn alternative_name(host: &str) -> Result<SanType, rcgen::Error> {
    let host = host.strip_suffix('.').unwrap_or(host);
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match address.parse::<IpAddr>() {
        Ok(address) => Ok(SanType::IpAddress(address)),
        Err(_) => Ok(SanType::DnsName(host.to_ascii_lowercase().try_into()?)),
    }
}

#[cfg(test)]
mod tests;
