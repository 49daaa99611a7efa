//! Squares of numbers by rdkafka, at least once: `rust_squares BOOTSTRAP SOURCE TARGET`. Runs until it is killed.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Message};

const PAUSE: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(120);

fn settings(bootstrap: &str) -> ClientConfig {
    let mut settings = ClientConfig::new();
    settings.set("bootstrap.servers", bootstrap);
    settings
}

fn square(number: &[u8]) -> String {
    let value: i64 = std::str::from_utf8(number).expect("UTF-8").parse().expect("a number");
    (value * value).to_string()
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, bootstrap, source, target] = &arguments[..] else {
        panic!("rust_squares BOOTSTRAP SOURCE TARGET");
    };
    let consumer: BaseConsumer = settings(bootstrap)
        .set("group.id", "squares")
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        .create()
        .expect("a consumer");
    let producer: BaseProducer = settings(bootstrap)
        .set("enable.idempotence", "true")
        .create()
        .expect("a producer");
    consumer.subscribe(&[source.as_str()]).expect("a subscription");
    loop {
        let number = match consumer.poll(PAUSE) {
            Some(Ok(number)) => number,
            // The broker is away; the client tries again.
            Some(Err(error)) => {
                eprintln!("{error}");
                continue;
            }
            None => continue,
        };
        let answer = square(number.payload().expect("a value"));
        let record = BaseRecord::to(target).key(number.key().unwrap_or_default()).payload(&answer);
        producer.send(record).map_err(|(error, _)| error).expect("room for a record");
        producer.flush(PATIENCE).expect("the broker comes back");
        // After a rebalance another member has the partition, and commits what it reads again.
        if let Err(error) = consumer.commit_message(&number, CommitMode::Sync) {
            eprintln!("{error}");
        }
    }
}
