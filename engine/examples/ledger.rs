//! A ledger: accounts, transfers between them, and statements. `cargo run --example ledger [directory]`;
//! run again on the same directory, it continues.

#![allow(clippy::print_stdout, reason = "it reports to a person")]

use std::error::Error as StdError;
use std::fmt::{Display, Formatter};
use std::fs::{File, create_dir_all};
use std::io::BufReader;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use mangrove_engine::storage::{FsStorage, MemoryStorage};
use mangrove_engine::{
    Database, Direction, Durability, Error, IndexBy, IndexedCollection, KeyPrefix, KeyRange, OptimisticTransaction,
    Options, ReadWrite, Snapshot, restore,
};

const OWNERS: [&str; 3] = ["ada", "grace", "joan"];
const DEPOSIT: u64 = 1000;
const DAYS: [&str; 3] = ["2026-10-31", "2026-11-01", "2026-11-02"];
const TRANSFERS_PER_DAY: u64 = 10;
/// All transfers of a day conflict with each other, so some run several times.
const ATTEMPTS: usize = 1000;

/// Why a transfer was refused, or the database's own error.
#[derive(Debug)]
enum LedgerError {
    NoAccount(String),
    Overdrawn { account: String, balance: u64 },
    Database(Error),
}

impl From<Error> for LedgerError {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl Display for LedgerError {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoAccount(account) => write!(f, "there is no account {account}"),
            Self::Overdrawn { account, balance } => write!(f, "{account} has only {balance}"),
            Self::Database(error) => error.fmt(f),
        }
    }
}

impl StdError for LedgerError {}

/// Balances are in `accounts`, under the owner. Transfers are in `transfers`, under the day and
/// their number on it, `2026-11-01/000003`, as `from to amount`; an index finds those of an owner.
struct Ledger<'d> {
    database: &'d Database,
    transfers: IndexedCollection<'d>,
}

impl<'d> Ledger<'d> {
    fn new(database: &'d Database) -> Result<Self, LedgerError> {
        let by_owner = IndexBy::multi("by owner", |_key, value| {
            value
                .split(|byte| *byte == b' ')
                .take(2)
                .map(<[u8]>::to_vec)
                .collect::<Vec<_>>()
        });
        let transfers = database.indexed_collection("transfers", [by_owner])?;
        // Of a ledger from before there was this index.
        transfers.build(&mut |_done, _total| ControlFlow::Continue(()))?;
        Ok(Self { database, transfers })
    }

    /// Opens an account, unless the owner has one.
    fn open_account(&self, owner: &str) -> Result<(), LedgerError> {
        self.database.transact(Durability::Strict, ATTEMPTS, |transaction| {
            transaction.get_or_insert("accounts", owner.as_bytes(), || DEPOSIT.to_be_bytes().to_vec())?;
            Ok::<_, LedgerError>(())
        })?;
        Ok(())
    }

    /// Moves money and records it, as one commit; returns the key of the transfer. An error takes
    /// everything back.
    fn transfer(&self, day: &str, from: &str, to: &str, amount: u64) -> Result<String, LedgerError> {
        let (key, _) = self.database.transact(Durability::Strict, ATTEMPTS, |transaction| {
            let number = transaction.count("transfers", KeyPrefix::new(day.as_bytes()).range())? + 1;
            let key = format!("{day}/{number:06}");
            self.transfers.set(
                transaction,
                key.as_bytes(),
                format!("{from} {to} {amount}").as_bytes(),
                None,
            )?;

            let balance = balance_in(transaction, to)?;
            transaction.set("accounts", to.as_bytes(), &(balance + amount).to_be_bytes())?;
            let balance = balance_in(transaction, from)?;
            let Some(rest) = balance.checked_sub(amount) else {
                return Err(LedgerError::Overdrawn {
                    account: from.to_owned(),
                    balance,
                });
            };
            transaction.set("accounts", from.as_bytes(), &rest.to_be_bytes())?;
            Ok(key)
        })?;
        Ok(key)
    }

    /// Pays an amount several times on each day, as long as there is money.
    fn pay(&self, from: &str, to: &str, amount: u64) -> Result<(), LedgerError> {
        for day in DAYS {
            for _ in 0..TRANSFERS_PER_DAY {
                match self.transfer(day, from, to, amount) {
                    Err(LedgerError::Overdrawn { .. }) => return Ok(()),
                    other => other?,
                };
            }
        }
        Ok(())
    }
}

fn balance_in(transaction: &OptimisticTransaction, owner: &str) -> Result<u64, LedgerError> {
    let bytes = transaction.get("accounts", owner.as_bytes())?;
    let bytes = bytes.ok_or_else(|| LedgerError::NoAccount(owner.to_owned()))?;
    Ok(number(&bytes))
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("a balance has eight bytes"))
}

/// All balances, as of the snapshot.
fn balances(snapshot: &Snapshot) -> Result<Vec<(String, u64)>, Error> {
    let Some(accounts) = snapshot.collection("accounts") else {
        return Ok(Vec::new());
    };
    let records = accounts.cursor(KeyRange::all(), Direction::Forward).into_iter();
    records
        .map(|record| record.map(|(owner, balance)| (text(&owner), number(&balance))))
        .collect()
}

/// What an owner's transfers come to, found through the index.
fn turnover(snapshot: &Snapshot, owner: &str) -> Result<i64, Error> {
    let mut sum = 0;
    let mut transfers = snapshot
        .index("transfers", "by owner")?
        .cursor(KeyRange::new(owner..=owner), Direction::Forward);
    while transfers.advance()? {
        let transfer = text(&transfers.value()?);
        let [from, to, amount] = transfer.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{transfer} is no transfer")
        };
        let amount: i64 = amount.parse().expect("an amount is a number");
        sum += amount * (i64::from(to == owner) - i64::from(from == owner));
    }
    Ok(sum)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Balances have to be what deposits and transfers come to.
fn check(snapshot: &Snapshot) -> Result<(), Error> {
    for (owner, balance) in balances(snapshot)? {
        assert_eq!(
            balance.checked_signed_diff(DEPOSIT),
            Some(turnover(snapshot, &owner)?),
            "{owner}"
        );
    }
    Ok(())
}

/// Returns the number of transfers in the ledger.
fn run(directory: &Path) -> Result<u64, Box<dyn StdError>> {
    create_dir_all(directory)?;
    let database = Database::open(Arc::new(FsStorage::new(directory.join("ledger"))), Options::default())?;
    let ledger = Ledger::new(&database)?;
    OWNERS.iter().try_for_each(|owner| ledger.open_account(owner))?;

    // A snapshot does not change.
    let before = database.snapshot();
    let balances_before = balances(&before)?;

    // One thread for each owner, who pays the next one.
    thread::scope(|scope| -> Result<(), LedgerError> {
        let start = |nth: usize| {
            let (ledger, from, to) = (&ledger, OWNERS[nth], OWNERS[(nth + 1) % OWNERS.len()]);
            scope.spawn(move || ledger.pay(from, to, nth as u64 + 1))
        };
        let threads: Vec<_> = (0..OWNERS.len()).map(start).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a thread has panicked"))
    })?;
    assert_eq!(balances(&before)?, balances_before);

    // The application's own errors: nothing of these transfers is left.
    let after = database.snapshot();
    let refused = ledger.transfer(DAYS[0], "ada", "grace", 1_000_000);
    assert!(matches!(refused, Err(LedgerError::Overdrawn { ref account, .. }) if account == "ada"));
    let refused = ledger.transfer(DAYS[0], "ada", "nobody", 1);
    assert!(matches!(refused, Err(LedgerError::NoAccount(ref account)) if account == "nobody"));
    assert_eq!(database.version(), after.version());
    check(&after)?;

    // Ranges of days: a prefix, two bounds, and the newest first.
    let transfers = after.collection("transfers").expect("it was just written");
    let november = transfers.count(KeyPrefix::new(b"2026-11").range())?;
    assert_eq!(transfers.len() - november, transfers.count(KeyRange::new(..DAYS[1]))?);
    println!("{} transfers, {november} of them in November", transfers.len());
    for record in transfers
        .cursor(KeyRange::all(), Direction::Reverse)
        .into_iter()
        .take(3)
    {
        let (key, transfer) = record?;
        println!("{}: {}", text(&key), text(&transfer));
    }
    println!("{:?}", balances(&after)?);

    // A backup is a stream. Indexes are not in it; declaring them builds them.
    let path = directory.join("ledger.backup");
    let mut file = File::create(&path)?;
    after.backup(&mut file, &mut |_| ControlFlow::Continue(()))?;
    file.sync_all()?;
    let target = MemoryStorage::new();
    let mut backup = BufReader::new(File::open(&path)?);
    restore(&mut backup, Arc::new(target.clone()), Options::default(), &mut |_| {
        ControlFlow::Continue(())
    })?;
    let copy = Database::open(Arc::new(target), Options::default())?;
    Ledger::new(&copy)?;
    assert_eq!(balances(&copy.snapshot())?, balances(&after)?);
    check(&copy.snapshot())?;

    let count = transfers.len();
    database.close()?;
    Ok(count)
}

fn main() -> Result<(), Box<dyn StdError>> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "example-ledger".to_owned());
    run(Path::new(&directory))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_is_right_and_continues() {
        let directory = tempfile::tempdir().expect("a directory");
        let each_run = DAYS.len() as u64 * OWNERS.len() as u64 * TRANSFERS_PER_DAY;
        for runs in 1..=2 {
            assert_eq!(run(directory.path()).expect("it runs"), runs * each_run);
        }
    }
}
