use super::*;

type Sample = (i64, i64, i64, &'static str, String);

/// Events of three sessions, with irregular distances, times that go backwards, and text of several bytes a character.
fn samples() -> Vec<Sample> {
    let mut samples = Vec::new();
    for session in [3, 7, 9] {
        for n in 0..40 {
            let kind = if n % 3 == 0 { "status" } else { "update" };
            let at = 1_700_000_000_000 + if n % 7 == 0 { -500 } else { n * 13 };
            samples.push((session, session + 10 * n * n, at, kind, format!("{{\"n\":\"{n} — ü\"}}")));
        }
    }
    samples
}

fn build(samples: &[Sample], codec: BlockCodec) -> EncodedBlock {
    let mut builder = BlockBuilder::default();
    for (session, seq, at, kind, data) in samples {
        builder.push(*session, *seq, *at, kind, data);
    }
    builder.take(codec).unwrap().unwrap()
}

fn read(block: &Block, session: Option<i64>) -> Vec<(i64, i64, i64, String, String)> {
    let events = block.places(session).map(|place| block.at(place, session).unwrap());
    events.map(|e| (e.session, e.seq, e.at, block.kind(e).to_owned(), block.data(e).to_owned())).collect()
}

fn owned(samples: &[Sample]) -> Vec<(i64, i64, i64, String, String)> {
    samples.iter().map(|(s, seq, at, kind, data)| (*s, *seq, *at, (*kind).to_owned(), data.clone())).collect()
}

#[test]
fn a_block_reads_back_as_its_events_by_session_and_by_seq() {
    let samples = samples();
    for codec in [BlockCodec::Plain, BlockCodec::Zstd] {
        let encoded = build(&samples, codec);
        let block = encoded.header.decode(&encoded.body).unwrap();
        for session in [3, 7, 9, 11] {
            let its: Vec<Sample> = samples.iter().filter(|sample| sample.0 == session).cloned().collect();
            assert_eq!(read(&block, Some(session)), owned(&its));
        }
        let mut ordered = samples.clone();
        ordered.sort_by_key(|sample| sample.1);
        assert_eq!(read(&block, None), owned(&ordered));
        assert_eq!(block.spans().collect::<Vec<_>>(), encoded.spans);
        assert_eq!((encoded.header.first, encoded.header.events), (3, 120));
    }
}

#[test]
fn each_flipped_bit_of_a_block_is_noticed() {
    for codec in [BlockCodec::Plain, BlockCodec::Zstd] {
        let EncodedBlock { header, body, .. } = build(&samples(), codec);
        for bit in 0..body.len() * 8 {
            let mut damaged = body.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(header.decode(&damaged).unwrap_err(), DAMAGED, "bit {bit}");
        }
        for bit in 0..63 {
            let flip = |number: i64| number ^ (1 << bit);
            for damaged in [
                BlockHeader { first: flip(header.first), ..header },
                BlockHeader { last: flip(header.last), ..header },
                BlockHeader { session: Some(flip(0)), ..header },
                BlockHeader { events: flip(header.events), ..header },
                BlockHeader { codec: flip(header.codec), ..header },
                BlockHeader { checksum: flip(header.checksum), ..header },
            ] {
                assert_eq!(damaged.decode(&body).unwrap_err(), DAMAGED, "bit {bit}");
            }
        }
    }
}

#[test]
fn a_body_that_is_cut_or_of_another_version_is_damaged_even_if_its_checksum_is_right() {
    let EncodedBlock { header, body, .. } = build(&samples(), BlockCodec::Plain);
    let decode = |body: &[u8]| BlockHeader { checksum: header.checksum_of(body), ..header }.decode(body);
    for length in 0..body.len() {
        assert_eq!(decode(&body[..length]).unwrap_err(), DAMAGED, "{length} bytes");
    }
    let mut newer = body.clone();
    newer[0] = VERSION + 1;
    assert_eq!(decode(&newer).unwrap_err(), DAMAGED);
    assert!(decode(&body).is_ok());
}
