//! The fields of a certificate that the server and its operator need (RFC 5280).

use core::fmt;
use core::net::IpAddr;

use x509_cert::der::asn1::{ObjectIdentifier, UintRef};
use x509_cert::der::oid::db::DB;
use x509_cert::der::oid::db::rfc5280::{
    ANY_EXTENDED_KEY_USAGE, ID_AD_CA_ISSUERS, ID_KP_SERVER_AUTH,
};
use x509_cert::der::oid::db::rfc5912::{
    ID_EC_PUBLIC_KEY, RSA_ENCRYPTION, SECP_256_R_1, SECP_384_R_1, SECP_521_R_1,
};
use x509_cert::der::oid::db::rfc8410::ID_ED_25519;
use x509_cert::der::{AnyRef, Decode, Error, ErrorKind, Header, Reader, SliceReader};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{AuthorityInfoAccessSyntax, ExtendedKeyUsage, SubjectAltName};
use x509_cert::name::Name;
use x509_cert::time::Time;
use x509_cert::{Certificate, SubjectPublicKeyInfo, TbsCertificate, Version};

/// The extension "TLS feature", which asks for stapling (RFC 7633 §4). Its only value in use is that.
const TLS_FEATURE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.1.24");

/// The kinds of keys that certificates may have. The first that a client can verify is the best for it: the order is that of
/// the server's work for a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// ECDSA with the curve P-256.
    EcdsaP256,
    /// Ed25519, which most browsers do not know.
    Ed25519,
    /// ECDSA with the curve P-384.
    EcdsaP384,
    /// ECDSA with the curve P-521.
    EcdsaP521,
    /// RSA, with the bits of its modulus: 2,048 to 8,192.
    Rsa(u16),
}

/// A name that a certificate is valid for. Its text is the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectName {
    /// A name in DNS, in lower case, perhaps with a wildcard: as the certificate has it, and not checked.
    Dns(String),
    /// An address.
    Ip(IpAddr),
}

/// A certificate of a chain: the names at the ends of the link as text, such as `CN=R3,O=Let's Encrypt,C=US`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) subject: String,
    pub(crate) issuer: String,
    /// In seconds since 1970.
    pub(crate) not_after: i64,
}

/// The fields of the certificate of a server.
#[derive(Debug)]
pub(crate) struct Fields {
    pub(crate) names: Vec<SubjectName>,
    /// True if the names are the common name of the subject, because the certificate has no others.
    pub(crate) is_common_name: bool,
    /// In seconds since 1970.
    pub(crate) not_before: i64,
    /// In seconds since 1970.
    pub(crate) not_after: i64,
    pub(crate) algorithm: Algorithm,
    /// True if it says where the certificate of its issuer can be found, as those of public authorities do.
    pub(crate) names_issuer: bool,
    /// True if clients must refuse it unless the server proves that it is not revoked (RFC 7633).
    pub(crate) must_be_stapled: bool,
    /// False if it says what it is for, and servers are not among that (RFC 5280 §4.2.1.12).
    pub(crate) is_for_servers: bool,
}

/// The reason why a certificate is refused.
#[derive(Debug)]
pub(crate) enum Refused {
    CutOff,
    Unreadable(String),
    Version1,
    UnsupportedKey(String),
}

impl Fields {
    pub(crate) fn read(der: &[u8]) -> Result<Self, Refused> {
        let certificate = Certificate::from_der(der)?;
        let certificate = certificate.tbs_certificate();
        if certificate.version() == Version::V1 {
            return Err(Refused::Version1);
        }
        let (names, is_common_name) = names(certificate)?;
        Ok(Self {
            names,
            is_common_name,
            not_before: seconds(certificate.validity().not_before),
            not_after: seconds(certificate.validity().not_after),
            algorithm: algorithm(certificate.subject_public_key_info())?,
            names_issuer: names_issuer(certificate),
            must_be_stapled: has_extension(certificate, TLS_FEATURE),
            is_for_servers: is_for_servers(certificate),
        })
    }
}

impl Link {
    pub(crate) fn read(der: &[u8]) -> Result<Self, Refused> {
        let certificate = Certificate::from_der(der)?;
        let certificate = certificate.tbs_certificate();
        Ok(Self {
            subject: certificate.subject().to_string(),
            issuer: certificate.issuer().to_string(),
            not_after: seconds(certificate.validity().not_after),
        })
    }
}

/// The head of a list of revoked certificates (RFC 5280 §5.1). The certificates may be hundreds of thousands, and are not
/// read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListHead {
    pub(crate) issuer: String,
    /// The time at which the next list has to come, in seconds since 1970.
    pub(crate) next_update: Option<i64>,
}

impl ListHead {
    pub(crate) fn read(der: &[u8]) -> Result<Self, Refused> {
        let mut reader = SliceReader::new(der)?;
        // That of the list with its signature, and that of the list.
        Header::decode(&mut reader)?;
        Header::decode(&mut reader)?;
        Option::<UintRef<'_>>::decode(&mut reader)?;
        AnyRef::decode(&mut reader)?;
        let issuer = Name::decode(&mut reader)?.to_string();
        Time::decode(&mut reader)?;
        let next_update = Option::<Time>::decode(&mut reader)?.map(seconds);
        Ok(Self { issuer, next_update })
    }
}

/// Returns the subject of a certificate, such as `CN=alice,O=Example` (RFC 4514); `None` if it cannot be read.
pub(crate) fn subject(der: &[u8]) -> Option<String> {
    Link::read(der).ok().map(|link| link.subject)
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Incomplete { .. } => Self::CutOff,
            _ => Self::Unreadable(error.to_string()),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EcdsaP256 => out.write_str("ECDSA P-256"),
            Self::Ed25519 => out.write_str("Ed25519"),
            Self::EcdsaP384 => out.write_str("ECDSA P-384"),
            Self::EcdsaP521 => out.write_str("ECDSA P-521"),
            Self::Rsa(bits) => write!(out, "RSA {bits}"),
        }
    }
}

impl fmt::Display for SubjectName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => out.write_str(name),
            Self::Ip(address) => address.fmt(out),
        }
    }
}

/// Returns the names that clients compare, and true if these are the common name. Clients look at that only if there is no
/// list of alternative names, and most do not even then (RFC 9525 §2).
fn names(certificate: &TbsCertificate) -> Result<(Vec<SubjectName>, bool), Refused> {
    if let Some((_, SubjectAltName(list))) = certificate.get_extension()? {
        return Ok((list.iter().filter_map(subject_name).collect(), false));
    }
    let common = certificate.subject().common_name()?;
    let names = common.map(|name| SubjectName::Dns(name.value().to_lowercase()));
    Ok((names.into_iter().collect(), true))
}

fn subject_name(name: &GeneralName) -> Option<SubjectName> {
    match name {
        GeneralName::DnsName(name) => Some(SubjectName::Dns(name.as_str().to_ascii_lowercase())),
        GeneralName::IpAddress(octets) => {
            let octets = octets.as_bytes();
            let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok().map(SubjectName::Ip)
        }
        _ => None,
    }
}

fn seconds(time: Time) -> i64 {
    i64::try_from(time.to_unix_duration().as_secs()).unwrap_or(i64::MAX)
}

fn has_extension(certificate: &TbsCertificate, id: ObjectIdentifier) -> bool {
    certificate.extensions().is_some_and(|all| all.iter().any(|one| one.extn_id == id))
}

/// Returns false if the certificate is only for something else than servers. A field that cannot be read says nothing.
fn is_for_servers(certificate: &TbsCertificate) -> bool {
    let field = certificate.get_extension::<ExtendedKeyUsage>();
    field.ok().flatten().is_none_or(|(_, ExtendedKeyUsage(list))| {
        list.iter().any(|purpose| [ID_KP_SERVER_AUTH, ANY_EXTENDED_KEY_USAGE].contains(purpose))
    })
}

/// Returns true if the certificate says where that of its issuer is. The field has no other use here: one that cannot be
/// read says nothing.
fn names_issuer(certificate: &TbsCertificate) -> bool {
    let field = certificate.get_extension::<AuthorityInfoAccessSyntax>();
    field.ok().flatten().is_some_and(|(_, AuthorityInfoAccessSyntax(list))| {
        list.iter().any(|access| access.access_method == ID_AD_CA_ISSUERS)
    })
}

fn algorithm(key: &SubjectPublicKeyInfo) -> Result<Algorithm, Refused> {
    match key.algorithm.oid {
        RSA_ENCRYPTION => {
            let bits = rsa_bits(key.subject_public_key.raw_bytes())?;
            let supported = u16::try_from(bits).ok().filter(|bits| RSA_BITS.contains(bits));
            supported
                .map(Algorithm::Rsa)
                .ok_or_else(|| Refused::UnsupportedKey(format!("RSA {bits}")))
        }
        ID_ED_25519 => Ok(Algorithm::Ed25519),
        ID_EC_PUBLIC_KEY => {
            let parameters = key.algorithm.parameters.as_ref();
            match parameters.and_then(|any| any.decode_as::<ObjectIdentifier>().ok()) {
                Some(SECP_256_R_1) => Ok(Algorithm::EcdsaP256),
                Some(SECP_384_R_1) => Ok(Algorithm::EcdsaP384),
                Some(SECP_521_R_1) => Ok(Algorithm::EcdsaP521),
                Some(curve) => Err(Refused::UnsupportedKey(format!("ECDSA {}", name(curve)))),
                None => {
                    Err(Refused::UnsupportedKey("ECDSA without the name of a curve".to_owned()))
                }
            }
        }
        other => Err(Refused::UnsupportedKey(name(other))),
    }
}

/// The least that clients accept, and the most that the cryptography signs with.
const RSA_BITS: core::ops::RangeInclusive<u16> = 2048..=8192;

/// Returns the bits of the modulus: RSAPublicKey of RFC 8017 §A.1.1.
fn rsa_bits(key: &[u8]) -> Result<usize, Refused> {
    let mut reader = SliceReader::new(key)?;
    let modulus = reader.sequence(|fields| {
        let modulus = UintRef::decode(fields)?;
        UintRef::decode(fields)?;
        Ok::<_, Error>(modulus)
    })?;
    let bytes = modulus.as_bytes();
    let unused = bytes.first().map_or(0, |first| first.leading_zeros() as usize);
    Ok(bytes.len() * 8 - unused)
}

/// Returns the name that an object has in an RFC, such as `id-Ed448`, or its number.
fn name(object: ObjectIdentifier) -> String {
    DB.by_oid(&object).map_or_else(|| object.to_string(), str::to_owned)
}
