use core::time::Duration;

use rcgen::{
    CertificateRevocationListParams, KeyIdMethod, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256,
    RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue,
    Tls13ClientSessionValue,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::Accepted;
use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, Error, HandshakeKind, NamedGroup,
    ProtocolVersion, ServerConnection, SideData, SignatureScheme, SupportedProtocolVersion,
};
use testkit::AnyCertificate;

use super::*;
use crate::clients::Refusal;
use crate::testing::{Authority, pair, pair_of, params, source};

const ECDSA: &[SignatureScheme] = &[SignatureScheme::ECDSA_NISTP256_SHA256];
const RSA: &[SignatureScheme] =
    &[SignatureScheme::RSA_PSS_SHA256, SignatureScheme::RSA_PKCS1_SHA256];

/// Tickets that a client shows to each server, whoever gave them.
#[derive(Debug)]
struct Careless(ClientSessionMemoryCache);

fn anywhere() -> ServerName<'static> {
    ServerName::try_from("anywhere").unwrap()
}

impl ClientSessionStore for Careless {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.0.set_tls12_session(anywhere(), value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.tls12_session(&anywhere())
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.0.remove_tls12_session(&anywhere());
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(anywhere(), value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(&anywhere())
    }
}

const ALL: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];

/// The settings of a client, with a certificate and its key if it has one.
fn client(
    versions: &[&'static SupportedProtocolVersion],
    schemes: &[SignatureScheme],
    certificate: Option<&(String, String)>,
) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(AnyCertificate::signed_by(schemes));
    let mut config = match certificate {
        Some((certificate, key)) => {
            let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain.map(Result::unwrap).collect(), key).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    let tickets = Careless(ClientSessionMemoryCache::new(8));
    config.resumption = Resumption::store(Arc::new(tickets));
    config
}

fn any_client() -> ClientConfig {
    client(ALL, &[ECDSA, RSA].concat(), None)
}

/// Both ends of a connection after the handshake.
struct Ends {
    client: ClientConnection,
    server: ServerConnection,
    site: usize,
}

/// Gives all bytes that one end has for the other, and returns false if there were none.
fn carry<From: SideData, To: SideData>(
    from: &mut ConnectionCommon<From>,
    to: &mut ConnectionCommon<To>,
) -> Result<bool, Error> {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).unwrap();
    }
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        to.read_tls(&mut rest).unwrap();
        to.process_new_packets()?;
    }
    Ok(!bytes.is_empty())
}

fn connect(acceptor: &Acceptor, config: ClientConfig, name: &str) -> Result<Ends, Error> {
    connect_as(acceptor, Arc::new(config), name)
}

/// Makes a handshake in two steps, and returns the server's error if it fails. A client of an address names no server.
fn connect_as(acceptor: &Acceptor, config: Arc<ClientConfig>, name: &str) -> Result<Ends, Error> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let local = match &name {
        ServerName::IpAddress(address) => Some(IpAddr::from(*address)),
        _ => None,
    };
    let mut client = ClientConnection::new(config, name).unwrap();
    let accepted = first_message(&mut client);
    let server_name = accepted.client_hello().server_name().map(str::to_owned);
    let Chosen { config, site } = match local.filter(|_| acceptor.differs_by_address()) {
        Some(address) => acceptor.choose_by_address(address),
        None => acceptor.choose_by_name(server_name.as_deref()),
    };
    let mut server = accepted.into_connection(config).map_err(|(error, _)| error)?;
    let mut is_moving = true;
    while is_moving {
        is_moving = carry(&mut server, &mut client)? | carry(&mut client, &mut server)?;
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(Ends { client, server, site })
}

fn first_message(client: &mut ClientConnection) -> Accepted {
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    let mut acceptor = rustls::server::Acceptor::default();
    acceptor.read_tls(&mut &bytes[..]).unwrap();
    acceptor.accept().map_err(|(error, _)| error).unwrap().expect("a whole message")
}

fn site(hosts: &[&str], pairs: &[&Arc<Pair>]) -> SiteTls {
    SiteTls {
        hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
        pairs: pairs.iter().map(|&pair| pair.clone()).collect(),
        profile: Profile::Intermediate,
        clients: None,
        http2: false,
    }
}

fn acceptor(sites: Vec<SiteTls>) -> Acceptor {
    acceptor_with(sites, &TicketKeys::new()).unwrap()
}

/// The first site has the hosts that no other has.
fn acceptor_with(sites: Vec<SiteTls>, keys: &TicketKeys) -> Result<Acceptor, Fault> {
    let all: Vec<_> = sites.iter().map(|site| site.hosts.clone()).collect();
    let covers = |pattern: &str, host: &str| match pattern.strip_prefix('*') {
        Some(end) => host.ends_with(end),
        None => host == pattern,
    };
    let site_of = move |host: Option<&str>| {
        let host = host.unwrap_or_default().to_ascii_lowercase();
        let has = |hosts: &Vec<String>| hosts.iter().any(|pattern| covers(pattern, &host));
        all.iter().position(has).unwrap_or(0)
    };
    Acceptor::new(sites, Box::new(site_of), keys)
}

/// Returns the site that a handshake chose, and the fingerprint of the certificate that the client got.
fn shown(acceptor: &Acceptor, schemes: &[SignatureScheme], name: &str) -> (usize, [u8; 32]) {
    let ends = connect(acceptor, client(ALL, schemes, None), name).unwrap();
    let certificate = &ends.client.peer_certificates().unwrap()[0];
    let mut digest = [0; 32];
    let full = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate);
    digest.copy_from_slice(full.as_ref());
    (ends.site, digest)
}

#[test]
fn a_client_gets_the_site_of_the_name_and_of_its_pairs_the_best_that_covers_it() {
    let rsa = pair_of(&["example.org", "www.example.org"], &PKCS_RSA_SHA256);
    let ecdsa = pair(&["www.example.org", "example.org"]);
    let wildcard = pair(&["*.example.org"]);
    let wild_rsa = pair_of(&["*.example.org"], &PKCS_RSA_SHA256);
    let other = pair(&["other.test"]);
    let plain = pair(&["default.test"]);
    let acceptor = acceptor(vec![
        site(&[], &[&plain]),
        site(&["example.org", "www.example.org", "ftp.example.org"], &[&rsa, &ecdsa, &wildcard]),
        site(&["*.example.org", "192.0.2.1"], &[&other, &wild_rsa, &wildcard]),
        // The first site has this host.
        site(&["example.org"], &[&other]),
    ]);
    let both = &[RSA, ECDSA].concat();
    for (name, schemes, index, pair) in [
        ("example.org", both, 1, &ecdsa),
        ("example.org", &RSA.to_vec(), 1, &rsa),
        ("www.example.org", both, 1, &ecdsa),
        ("WWW.Example.ORG", both, 1, &ecdsa),
        ("www.example.org", &RSA.to_vec(), 1, &rsa),
        ("ftp.example.org", both, 1, &wildcard),
        ("a.example.org", both, 2, &wildcard),
        ("a.example.org", &RSA.to_vec(), 2, &wild_rsa),
        // The site's wildcard has any depth, those of certificates have one label: the first pair, which does not fit.
        ("a.b.example.org", both, 2, &other),
        ("unknown.test", both, 0, &plain),
        // The certificate of a site that the name does not belong to is not shown.
        ("other.test", both, 0, &plain),
        // Clients do not name addresses, so the address of the connection counts.
        ("192.0.2.1", both, 2, &other),
        ("192.0.2.2", both, 0, &plain),
    ] {
        assert_eq!(shown(&acceptor, schemes, name), (index, pair.digest()), "{name} {schemes:?}");
    }
    assert_eq!(acceptor.choose_by_name(Some("a.b.example.org")).site, 2);
    assert_eq!(acceptor.choose_by_name(None).site, 0);
    assert!(format!("{acceptor:?}").len() < 5000);
}

#[test]
fn clients_that_name_no_server_get_a_pair_that_they_can_verify() {
    let rsa = pair_of(&["example.org"], &PKCS_RSA_SHA256);
    let ecdsa = pair(&["example.org", "www.example.org"]);
    let beside = pair(&["other.test"]);
    let acceptor = acceptor(vec![site(&["example.org"], &[&rsa, &beside, &ecdsa])]);
    for (schemes, pair) in [(ECDSA, &ecdsa), (RSA, &rsa)] {
        assert_eq!(shown(&acceptor, schemes, "127.0.0.1").1, pair.digest());
        assert_eq!(shown(&acceptor, schemes, "unknown.test").1, pair.digest());
    }
    // No name of it is one that a client could ask for.
    let nameless = pair(&["127.0.0.1"]);
    let acceptor = self::acceptor(vec![site(&[], &[&nameless, &ecdsa])]);
    assert_eq!(shown(&acceptor, ECDSA, "127.0.0.1").1, nameless.digest());
    assert_eq!(shown(&acceptor, ECDSA, "www.example.org").1, ecdsa.digest());
}

#[test]
fn a_client_that_names_no_server_gets_the_site_and_the_pair_of_its_address() {
    let (plain, named) = (pair(&["default.test"]), pair(&["a.test"]));
    let (four, six) = (pair(&["192.0.2.1"]), pair(&["2001:db8::1"]));
    let rsa = pair_of(&["192.0.2.1"], &PKCS_RSA_SHA256);
    let hosts = ["a.test", "192.0.2.1", "[2001:db8::1]"];
    let acceptor = acceptor(vec![site(&[], &[&plain]), site(&hosts, &[&named, &rsa, &four, &six])]);
    for (address, schemes, index, pair) in [
        ("192.0.2.1", ECDSA, 1, &four),
        ("192.0.2.1", RSA, 1, &rsa),
        // The same address at a socket for both versions.
        ("::ffff:192.0.2.1", ECDSA, 1, &four),
        ("2001:db8::1", ECDSA, 1, &six),
        ("192.0.2.2", ECDSA, 0, &plain),
        ("2001:db8::2", ECDSA, 0, &plain),
    ] {
        assert_eq!(shown(&acceptor, schemes, address), (index, pair.digest()), "{address}");
    }
    // A name counts, whatever the address.
    assert_eq!(shown(&acceptor, ECDSA, "a.test"), (1, named.digest()));
    // Without sites or pairs to choose from, no address is asked for.
    for (hosts, pairs) in [(&["192.0.2.1"][..], &[&four][..]), (&[], &[&plain, &named])] {
        assert!(!self::acceptor(vec![site(hosts, pairs)]).differs_by_address(), "{hosts:?}");
    }
    let only = self::acceptor(vec![site(&[], &[&named, &four])]);
    assert_eq!(shown(&only, ECDSA, "192.0.2.1"), (0, four.digest()));
    assert_eq!(shown(&only, ECDSA, "192.0.2.2"), (0, named.digest()));
}

#[test]
fn a_ticket_without_a_name_is_good_for_its_address() {
    let both = pair(&["192.0.2.1", "192.0.2.2"]);
    // Both sites have the same rules, and so the same keys.
    let acceptor =
        acceptor(vec![site(&["192.0.2.1"], &[&both]), site(&["192.0.2.2", "a.test"], &[&both])]);
    for version in [&TLS13, &TLS12] {
        for (first, second, is_resumed) in [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.2", "192.0.2.1", false),
            ("192.0.2.2", "a.test", false),
            ("a.test", "192.0.2.2", false),
            ("a.test", "a.test", true),
        ] {
            let config = Arc::new(client(&[version], ECDSA, None));
            connect_as(&acceptor, config.clone(), first).unwrap();
            let again = connect_as(&acceptor, config, second).unwrap();
            let is = again.server.handshake_kind() == Some(HandshakeKind::Resumed);
            assert_eq!(is, is_resumed, "{first} {second} {version:?}");
        }
    }
}

#[test]
fn a_client_without_any_signature_in_common_is_told_so() {
    let ecdsa = pair(&["example.org"]);
    let acceptor = acceptor(vec![site(&["example.org"], &[&ecdsa])]);
    for versions in [ALL, &[&TLS12]] {
        let config = client(versions, &[SignatureScheme::RSA_PSS_SHA256], None);
        let error = connect(&acceptor, config, "example.org").err().unwrap();
        assert!(matches!(error, Error::PeerIncompatible(_)), "{error}");
    }
}

#[test]
fn profiles_have_their_versions_and_all_groups() {
    let pair = pair(&["example.org"]);
    let intermediate = site(&["old.test"], &[&pair]);
    let modern = SiteTls { profile: Profile::Modern, ..site(&["new.test"], &[&pair]) };
    let acceptor = acceptor(vec![intermediate, modern]);
    for (name, versions, version) in [
        ("old.test", ALL, Some(ProtocolVersion::TLSv1_3)),
        ("old.test", &[&TLS12], Some(ProtocolVersion::TLSv1_2)),
        ("new.test", ALL, Some(ProtocolVersion::TLSv1_3)),
        ("new.test", &[&TLS12], None),
    ] {
        let ends = connect(&acceptor, client(versions, ECDSA, None), name);
        assert_eq!(ends.ok().and_then(|ends| ends.server.protocol_version()), version);
    }

    let group = |ends: &Ends| ends.server.negotiated_key_exchange_group().unwrap().name();
    let best = connect(&acceptor, any_client(), "new.test").unwrap();
    assert_eq!(group(&best), NamedGroup::X25519MLKEM768);
    for wanted in [NamedGroup::X25519, NamedGroup::secp256r1, NamedGroup::secp384r1] {
        let mut only = rustls::crypto::aws_lc_rs::default_provider();
        only.kx_groups.retain(|group| group.name() == wanted);
        let builder = ClientConfig::builder_with_provider(Arc::new(only));
        let config = builder.with_protocol_versions(ALL).unwrap().dangerous();
        let anyone = AnyCertificate::signed_by(ECDSA);
        let config = config.with_custom_certificate_verifier(anyone).with_no_client_auth();
        assert_eq!(group(&connect(&acceptor, config, "old.test").unwrap()), wanted);
    }
    for suite in &provider().cipher_suites {
        let name = format!("{:?}", suite.suite());
        let is_aead = name.contains("_GCM_") || name.contains("_CHACHA20_POLY1305_");
        assert!(is_aead && (name.contains("_ECDHE_") || name.starts_with("TLS13_")), "{name}");
    }
}

#[test]
fn clients_choose_http2_where_it_is_spoken_or_http1_or_nothing() {
    let pair = pair(&["example.org"]);
    let (h1, h2) = (Ok(Some(&b"http/1.1"[..])), Ok(Some(&b"h2"[..])));
    let none = || Err(Error::NoApplicationProtocol);
    for (http2, offered, chosen) in [
        (false, &[][..], Ok(None)),
        (false, &[&b"h2"[..], b"http/1.1"], h1.clone()),
        (false, &[b"h2"], none()),
        (true, &[], Ok(None)),
        (true, &[b"http/1.1", b"h2"], h2.clone()),
        (true, &[b"h2"], h2),
        (true, &[b"http/1.1"], h1),
        (true, &[b"h3"], none()),
    ] {
        let site = SiteTls { http2, ..site(&["example.org"], &[&pair]) };
        let acceptor = acceptor(vec![site]);
        let mut config = any_client();
        config.alpn_protocols = offered.iter().map(|protocol| protocol.to_vec()).collect();
        let ends = connect(&acceptor, config, "example.org");
        let protocol = ends.map(|ends| ends.server.alpn_protocol().map(<[u8]>::to_vec));
        assert_eq!(protocol, chosen.map(|chosen| chosen.map(<[u8]>::to_vec)));
    }
}

#[test]
fn the_secrets_of_a_connection_can_be_taken_and_no_session_is_kept() {
    let acceptor = acceptor(vec![site(&[], &[&pair(&["example.org"])])]);
    let Chosen { config, .. } = acceptor.choose_by_name(None);
    assert!(config.enable_secret_extraction);
    assert!(!config.session_storage.can_cache());
    assert!(config.ticketer.enabled());
    assert_eq!(config.max_early_data_size, 0);
    let ends = connect(&acceptor, any_client(), "example.org").unwrap();
    assert!(ends.server.dangerous_extract_secrets().is_ok());
}

fn clients(authority: &Authority, require: bool, crl: Option<&str>) -> Clients {
    let crl = crl.map(|crl| source("it.crl", crl.as_bytes()));
    Clients::read(source("ca.pem", authority.certificate.as_bytes()), require, crl).unwrap()
}

#[test]
fn a_ticket_is_good_for_its_name_and_the_rules_that_it_was_made_under() {
    let authority = Authority::new("authority");
    let pair = pair(&["a.test", "b.test"]);
    let open = |host| site(&[host], &[&pair]);
    let modern = |host| SiteTls { profile: Profile::Modern, ..open(host) };
    let optional = |host| SiteTls { clients: Some(clients(&authority, false, None)), ..open(host) };
    let keys = TicketKeys::new();
    let before = acceptor_with(vec![open("a.test"), open("b.test")], &keys).unwrap();
    let again = acceptor_with(vec![open("b.test"), open("a.test")], &keys).unwrap();
    let to_modern = acceptor_with(vec![modern("a.test"), open("b.test")], &keys).unwrap();
    let to_optional = acceptor_with(vec![optional("a.test"), open("b.test")], &keys).unwrap();
    let elsewhere = acceptor(vec![open("a.test")]);
    let handed_over = TicketKeys::from_bytes(&keys.to_bytes()).unwrap();
    let upgraded = acceptor_with(vec![open("a.test")], &handed_over).unwrap();
    handed_over.forget_handed_over();
    let late = acceptor_with(vec![modern("a.test")], &handed_over).unwrap();
    for version in [&TLS13, &TLS12] {
        for (second, name, is_resumed) in [
            (&before, "a.test", true),
            // A reload.
            (&again, "a.test", true),
            // Another process that has got the keys.
            (&upgraded, "a.test", true),
            (&late, "a.test", false),
            (&before, "b.test", false),
            (&to_modern, "a.test", false),
            (&to_optional, "a.test", false),
            // Another server.
            (&elsewhere, "a.test", false),
        ] {
            let config = Arc::new(client(&[version], ECDSA, None));
            let first = connect_as(&before, config.clone(), "a.test").unwrap();
            assert_eq!(first.server.handshake_kind(), Some(HandshakeKind::Full));
            let Ok(second) = connect_as(second, config, name) else {
                assert_eq!(version.version, ProtocolVersion::TLSv1_2);
                assert!([&to_modern, &late].iter().any(|one| Arc::ptr_eq(&second.0, &one.0)));
                continue;
            };
            let is = second.server.handshake_kind() == Some(HandshakeKind::Resumed);
            assert_eq!(is, is_resumed, "{name} {version:?}");
        }
    }
}

#[test]
fn keys_of_tickets_that_no_acceptor_has_are_dropped() {
    let keys = TicketKeys::new();
    let pair = pair(&["a.test"]);
    let modern = || SiteTls { profile: Profile::Modern, ..site(&[], &[&pair]) };
    let first = acceptor_with(vec![modern()], &keys).unwrap();
    let second = acceptor_with(vec![modern(), site(&[], &[&pair])], &keys).unwrap();
    let of = |acceptor: &Acceptor, site: usize| acceptor.0.sites[site].config.ticketer.clone();
    assert!(Arc::ptr_eq(&of(&first, 0), &of(&second, 0)));
    assert!(!Arc::ptr_eq(&of(&second, 0), &of(&second, 1)));
    let kept = Arc::downgrade(&of(&second, 0));
    drop(first);
    assert!(kept.upgrade().is_some());
    drop(second);
    assert!(kept.upgrade().is_none());
}

/// A certificate for a client and its key in PEM.
fn identity(authority: &Authority, serial: u64) -> (String, String) {
    identity_with(authority, serial, |_| {})
}

/// The same, with other values.
fn identity_with(
    authority: &Authority,
    serial: u64,
    change: impl FnOnce(&mut rcgen::CertificateParams),
) -> (String, String) {
    let mut params = params("client", &[]);
    params.serial_number = Some(serial.into());
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    change(&mut params);
    let (certificate, key) = authority.issue(&params);
    (certificate, key.serialize_pem())
}

/// A list of revoked certificates that is out of date after `valid`.
fn revoked(authority: &Authority, serial: u64, valid: Duration) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let this_update = date_time_ymd(1970, 1, 1) + now - Duration::from_secs(3600);
    let list = CertificateRevocationListParams {
        this_update,
        next_update: this_update + valid,
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: vec![RevokedCertParams {
            serial_number: serial.into(),
            revocation_time: this_update,
            reason_code: None,
            invalidity_date: None,
        }],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    list.signed_by(&authority.issuer).unwrap().pem().unwrap()
}

#[test]
fn clients_are_let_in_by_their_certificates_or_refused_for_a_reason() {
    let authority = Authority::new("authority");
    let stranger = Authority::new("stranger");
    let pair = pair(&["example.org"]);
    let day = Duration::from_secs(24 * 60 * 60);
    let crl = revoked(&authority, 7, day);
    let late = revoked(&authority, 7, Duration::from_secs(1));
    let good = identity(&authority, 8);
    let bad = identity(&authority, 7);
    let strange = identity(&stranger, 8);
    let timed = |from, to| {
        identity_with(&authority, 8, |params| {
            params.not_before = date_time_ymd(from, 1, 1);
            params.not_after = date_time_ymd(to, 1, 1);
        })
    };
    let (old, early) = (timed(2020, 2021), timed(2090, 2091));
    let of_server = identity_with(&authority, 8, |params| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    });
    let other_crl = revoked(&stranger, 7, day);
    for (require, crl, certificate, refusal) in [
        (true, None, None, Some(Refusal::Missing)),
        (true, None, Some(&good), None),
        (true, None, Some(&bad), None),
        (true, None, Some(&strange), Some(Refusal::UnknownAuthority)),
        (true, None, Some(&old), Some(Refusal::Expired)),
        (true, None, Some(&early), Some(Refusal::NotYetValid)),
        (true, None, Some(&of_server), Some(Refusal::Purpose)),
        (false, None, None, None),
        (false, None, Some(&good), None),
        (false, None, Some(&strange), Some(Refusal::UnknownAuthority)),
        (true, Some(&crl), Some(&good), None),
        (true, Some(&crl), Some(&bad), Some(Refusal::Revoked)),
        (false, Some(&crl), Some(&bad), Some(Refusal::Revoked)),
        (false, Some(&crl), None, None),
        (true, Some(&late), Some(&good), Some(Refusal::OldRevocationList)),
        (true, Some(&other_crl), Some(&good), Some(Refusal::NoRevocationList)),
    ] {
        let clients = Some(clients(&authority, require, crl.map(|crl| &crl[..])));
        let acceptor = acceptor(vec![SiteTls { clients, ..site(&[], &[&pair]) }]);
        for version in [&TLS13, &TLS12] {
            let config = client(&[version], ECDSA, certificate);
            let ends = connect(&acceptor, config, "example.org");
            let is_known = |ends: &Ends| ends.server.peer_certificates().is_some();
            match ends {
                Ok(ends) => {
                    assert_eq!(refusal, None, "{require} {version:?}");
                    assert_eq!(is_known(&ends), certificate.is_some());
                }
                Err(error) => assert_eq!(Refusal::of(&error), refusal, "{version:?} {error}"),
            }
        }
    }
}

#[test]
fn the_operator_is_told_of_old_lists_and_authorities() {
    let mut old = params("old", &[]);
    old.not_before = date_time_ymd(2020, 1, 1);
    old.not_after = date_time_ymd(2021, 1, 1);
    let (old, good) = (Authority::of(None, old), Authority::new("good"));
    let ca = [&*good.certificate, &old.certificate].concat();
    let hour = Duration::from_secs(3600);
    let crl = [revoked(&good, 1, 2 * hour), revoked(&old, 1, hour / 2)].concat();
    let crl = source("it.crl", crl.as_bytes());
    let clients = Clients::read(source("ca.pem", ca.as_bytes()), true, Some(crl)).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = i64::try_from(now.as_secs()).unwrap();
    let texts = |now| -> Vec<_> {
        crate::check::check_clients(&clients, now).iter().map(ToString::to_string).collect()
    };
    let expired = "ca.pem: the certificate of the authority CN=old expired ";
    let is_old = "it.crl: the list of revoked certificates of CN=old is out of date (its next update was due today)";
    let found = texts(now);
    assert!(found[0].starts_with(expired) && found[1].starts_with(is_old), "{found:?}");
    assert_eq!(found.len(), 2);
    let found = texts(now + 3 * 24 * 60 * 60);
    assert_eq!(found.len(), 3);
    assert!(found[1].contains("CN=good is out of date (its next update was due 2 days ago)"));
    assert_eq!(texts(0), [""; 0]);
    // It is as the warning says: an authority that has expired still lets its clients in.
    let clients = Clients::read(source("ca.pem", old.certificate.as_bytes()), true, None).unwrap();
    let pair = pair(&["example.org"]);
    let site = SiteTls { clients: Some(clients), ..site(&[], &[&pair]) };
    let client = client(ALL, ECDSA, Some(&identity(&old, 8)));
    assert!(connect(&acceptor(vec![site]), client, "example.org").is_ok());
}

#[test]
fn sites_with_the_same_rules_and_certificates_are_interchangeable() {
    let authority = Authority::new("authority");
    let (one, two) = (pair(&["a.test", "b.test"]), pair(&["a.test", "b.test"]));
    let closed = |require| Some(clients(&authority, require, None));
    let acceptor = acceptor(vec![
        site(&["a.test"], &[&one]),
        site(&["b.test"], &[&one]),
        site(&["c.test"], &[&two]),
        SiteTls { profile: Profile::Modern, ..site(&["d.test"], &[&one]) },
        SiteTls { clients: closed(true), ..site(&["e.test"], &[&one]) },
        SiteTls { clients: closed(false), ..site(&["f.test"], &[&one]) },
        SiteTls { clients: closed(true), ..site(&["g.test"], &[&one]) },
        site(&["h.test"], &[&one, &two]),
    ]);
    for shown in 0..8 {
        for asked in 0..8 {
            let expected =
                shown == asked || [(0, 1), (1, 0), (4, 6), (6, 4)].contains(&(shown, asked));
            assert_eq!(acceptor.is_interchangeable(shown, asked), expected, "{shown} {asked}");
        }
        // No site has these, so they are for the default site, as they are without TLS.
        for host in ["192.0.2.1", "[2001:db8::1]", "[::1%25eth0]", "-x.e.test", "a b", ""] {
            assert_eq!(acceptor.permits(shown, Some(host)), shown < 2, "{shown} {host}");
        }
    }
    assert!(acceptor.permits(0, None) && acceptor.permits(0, Some("b.test")));
    assert!(!acceptor.permits(0, Some("e.test")));
    // A client whose handshake was for a name may ask for an address.
    let here = ["192.0.2.1", "[2001:db8::1]"];
    let acceptor = self::acceptor(vec![site(&["a.test"], &[&one]), site(&here, &[&two])]);
    for host in ["192.0.2.1", "[2001:DB8::1]"] {
        assert!(!acceptor.permits(0, Some(host)) && acceptor.permits(1, Some(host)), "{host}");
    }
    assert!(acceptor.permits(0, Some("192.0.2.2")) && !acceptor.permits(1, Some("192.0.2.2")));
    // All sites are alike.
    let acceptor = self::acceptor(vec![site(&["a.test"], &[&one]), site(&["b.test"], &[&one])]);
    assert!(
        ["192.0.2.1", "-x.b.test", "b.test"].iter().all(|host| acceptor.permits(0, Some(host)))
    );
}

#[test]
fn settings_that_cannot_be_used_are_refused() {
    let fault = |sites| acceptor_with(sites, &TicketKeys::new()).unwrap_err().to_string();
    let nothing = "has no certificate: name its file, or use \"self-signed\"";
    assert_eq!(fault(vec![site(&["a.test", "b.test"], &[])]), format!("the site a.test {nothing}"));
    assert_eq!(fault(vec![site(&[], &[])]), format!("the site * {nothing}"));

    let authority = Authority::new("authority");
    let ca = authority.certificate.as_bytes();
    let crl = revoked(&authority, 1, Duration::from_secs(60));
    let cut = &crl[..crl.len() - 30];
    let (_, key) = crate::testing::self_signed(&params("it", &[]), &PKCS_ECDSA_P256_SHA256);
    let random = b"-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n";
    let no_list = b"-----BEGIN X509 CRL-----\nMAMCAQE=\n-----END X509 CRL-----\n";
    for (ca, crl, text) in [
        (&b""[..], None, "ca.pem: the file has no certificate: "),
        (key.as_bytes(), None, "ca.pem: the file has no certificate: "),
        (random, None, "ca.pem: certificate 1 of the file cannot be read ("),
        (&ca[..ca.len() - 30], None, "ca.pem: the file ends in the middle of a section: "),
        (ca, Some(ca), "it.crl: the file has no list of revoked certificates: "),
        (ca, Some(cut.as_bytes()), "it.crl: the file ends in the middle of a section: "),
        (ca, Some(no_list), "it.crl: the list of revoked certificates cannot be used ("),
    ] {
        let crl = crl.map(|crl| source("it.crl", crl));
        let fault = Clients::read(source("ca.pem", ca), true, crl).unwrap_err();
        assert!(fault.to_string().starts_with(text), "{fault}\n{text}");
    }
}
