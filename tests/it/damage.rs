//! Files of the state directory that are damaged while there is no daemon: the next one starts, says which file it is, and keeps every
//! session that it can.

use intercom_testkit::harness::Daemon;
use nix::sys::signal::Signal;
use serde_json::json;

/// Ways in which a file of JSON may be damaged.
fn damages(sound: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut flipped = sound.to_vec();
    flipped.iter_mut().step_by(7).for_each(|byte| *byte ^= 0x55);
    let huge = format!("{{\"version\":{}}}", "9".repeat(400));
    vec![
        ("empty", Vec::new()),
        ("half", sound[..sound.len() / 2].to_vec()),
        ("flipped bits", flipped),
        ("zeros", vec![0; 1 << 20]),
        ("another shape", b"[1, null, {\"pid\": \"x\"}]".to_vec()),
        ("numbers out of range", huge.into_bytes()),
        ("not UTF-8", vec![0xff, 0xfe, b'{', b'}']),
        ("deep", "[".repeat(200_000).into_bytes()),
    ]
}

#[test]
fn a_damaged_record_of_one_process_costs_the_others_nothing_and_is_named() {
    let mut daemon = Daemon::quick("");
    let other = daemon.run(&["echo"]);
    let mut n = 0;
    for file in ["meta.json", "exit"] {
        for which in 0..damages(b"{}").len() {
            let session = daemon.run(&["serve"]);
            let (dir, _) = daemon.end(Signal::SIGKILL);
            let life = dir.path().join("state/agents").join(&session);
            let life = life.read_dir().unwrap().flatten().next().unwrap().path();
            let sound = std::fs::read(life.join("meta.json")).unwrap();
            let (name, bytes) = damages(&sound).swap_remove(which);
            std::fs::write(life.join(file), bytes).unwrap();
            daemon = Daemon::start_in(dir, &[], &[]);
            let log = daemon.log();
            assert!(!log.contains("panicked"), "{file} {name}: {log}");
            if file == "meta.json" {
                assert!(log.contains("a file is damaged") && log.contains(file), "{name}: {log}");
            }
            // Whatever is left of it can be stopped, and is over then.
            let (status, stopped) = daemon.post(&format!("/api/v1/sessions/{session}/stop"), &json!({}));
            assert_eq!((status, &stopped["phase"]), (200, &json!("ended")), "{file} {name}: {stopped}");
            n += 1;
            daemon.prompt(&other, &format!("still here {n}"));
            let said = format!("still here {n}");
            daemon.wait_for(&other, "the echo", |event| event.to_string().contains(&said));
        }
    }
}

#[test]
fn a_damaged_daemon_json_keeps_nobody_from_the_daemon() {
    let daemon = Daemon::quick("");
    let file = daemon.dir.path().join("state/daemon.json");
    let sound = std::fs::read(&file).unwrap();
    for (name, bytes) in damages(&sound) {
        std::fs::write(&file, bytes).unwrap();
        let listed = daemon.cli(&["ls"]);
        assert_eq!(listed.code, 0, "{name}: {listed:?}");
        let status = daemon.cli(&["daemon", "status"]);
        assert!(!status.stderr.contains("panicked"), "{name}: {status:?}");
    }
    std::fs::write(&file, sound).unwrap();
}
