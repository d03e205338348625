//! A headless Chromium, driven over the `DevTools` protocol
//! (<https://chromedevtools.github.io/devtools-protocol/>) through a pair of pipes: no port, no WebSocket.
//!
//! With `--remote-debugging-pipe` the browser reads JSON messages, each ended by a NUL, from file descriptor 3 and writes
//! them to 4. Named pipes, which a shell opens under these numbers, spare a `pre_exec`.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use nix::sys::signal::{Signal, killpg};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long the browser may take for one step.
const PATIENCE: Duration = Duration::from_secs(60);

/// Events that mean that a page is not as quiet as it must be: errors, console output, requests.
const TOLD: [&str; 4] =
    ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Network.requestWillBeSent"];

/// A browser with one page. Ends with its process group when dropped.
pub struct Browser {
    child: Child,
    /// Profile and pipes.
    _directory: TempDir,
    to: File,
    from: Receiver<Value>,
    next: u64,
    session: Option<String>,
    events: VecDeque<Value>,
}

impl Browser {
    /// Starts Chromium with an empty page.
    ///
    /// # Errors
    ///
    /// When there is no `chromium`, or it does not answer.
    pub fn start() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let (input, output) = (directory.path().join("in"), directory.path().join("out"));
        for pipe in [&input, &output] {
            mkfifo(pipe, Mode::S_IRUSR | Mode::S_IWUSR).context("cannot make a pipe")?;
        }
        let mut command = Command::new("sh");
        // As root there is no sandbox; the page is ours. /dev/shm is small in containers.
        command.args([
            "-c",
            r#"exec chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars \
            --no-first-run --disable-background-networking --disable-component-update --disable-sync \
            --remote-debugging-pipe --user-data-dir="$0" 3<"$1" 4>"$2""#,
        ]);
        command.arg(directory.path().join("profile")).arg(&input).arg(&output);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        // Each side waits for the other: in the order in which the shell opens them.
        let to = OpenOptions::new().write(true).open(&input)?;
        let from = listen(File::open(&output)?);
        let mut browser =
            Self { child, _directory: directory, to, from, next: 1, session: None, events: VecDeque::new() };
        browser.attach().context("is chromium installed? (`cargo xtask setup`)")?;
        Ok(browser)
    }

    fn attach(&mut self) -> Result<()> {
        let target = self.call("Target.createTarget", &json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.call("Target.attachToTarget", &attach)?;
        self.session = session["sessionId"].as_str().map(str::to_owned);
        ensure!(self.session.is_some(), "no session: {session}");
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), &json!({}))?;
        }
        Ok(())
    }

    /// Calls a method of the protocol and gives its result.
    ///
    /// # Errors
    ///
    /// When the browser refuses it or does not answer.
    pub fn call(&mut self, method: &str, params: &Value) -> Result<Value> {
        let id = self.next;
        self.next += 1;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to
            .write_all(format!("{message}\0").as_bytes())
            .with_context(|| format!("{method}: the browser is gone"))?;
        loop {
            let answer = self.receive().with_context(|| method.to_owned())?;
            if answer["id"] != id {
                self.events.push_back(answer);
            } else if answer["error"].is_object() {
                bail!("{method}: {}", answer["error"]);
            } else {
                return Ok(answer["result"].clone());
            }
        }
    }

    fn receive(&self) -> Result<Value> {
        self.from.recv_timeout(PATIENCE).map_err(|_| anyhow!("the browser does not answer"))
    }

    /// Opens the file `path` and waits until it is loaded and its script has run.
    ///
    /// # Errors
    ///
    /// When it cannot be loaded.
    pub fn open(&mut self, path: &Path) -> Result<()> {
        self.events.clear();
        let found = self.call("Page.navigate", &json!({"url": format!("file://{}", path.display())}))?;
        ensure!(found.get("errorText").is_none(), "{found}");
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.receive()?;
            self.events.push_back(event);
        }
        Ok(())
    }

    /// The value of a JavaScript expression (a promise is awaited).
    ///
    /// # Errors
    ///
    /// When it throws.
    pub fn eval(&mut self, expression: &str) -> Result<Value> {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", &params)?;
        ensure!(result.get("exceptionDetails").is_none(), "{expression}: {}", result["exceptionDetails"]);
        Ok(result["result"]["value"].clone())
    }

    /// Presses and releases a key, by its name in `KeyboardEvent.key`.
    ///
    /// # Errors
    ///
    /// When the browser is gone.
    pub fn press(&mut self, key: &str) -> Result<()> {
        // Keys act by these codes; printing ones by their text.
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            "End" => 35,
            "Home" => 36,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            _ => 0,
        };
        let text = if code == 0 { key } else { "" };
        let mut event = json!({"type": "keyDown", "key": key, "windowsVirtualKeyCode": code, "text": text});
        self.call("Input.dispatchKeyEvent", &event)?;
        event["type"] = json!("keyUp");
        self.call("Input.dispatchKeyEvent", &event).map(drop)
    }

    /// Clicks the middle of the element that `selector` finds, after scrolling it into view.
    ///
    /// # Errors
    ///
    /// When there is no such element.
    pub fn click(&mut self, selector: &str) -> Result<()> {
        let find = format!(
            "(() => {{ const e = document.querySelector({}); e.scrollIntoView({{block: 'center', behavior: 'instant'}}); \
             const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; }})()",
            json!(selector)
        );
        let at = self.eval(&find)?;
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let mut event = json!({"type": kind, "x": at[0], "y": at[1]});
            if kind != "mouseMoved" {
                (event["button"], event["clickCount"]) = (json!("left"), json!(1));
            }
            self.call("Input.dispatchMouseEvent", &event)?;
        }
        Ok(())
    }

    /// Errors, console output and requests beyond the page itself, since it was opened.
    ///
    /// # Errors
    ///
    /// When the browser is gone.
    pub fn complaints(&mut self) -> Result<Vec<Value>> {
        // What the browser has to tell comes before its answer to this.
        self.eval("new Promise(done => setTimeout(done, 50))")?;
        let is_page =
            |event: &Value| event["params"]["type"] == "Document" || event["params"]["request"]["url"] == "data:,";
        let told = |event: &&Value| TOLD.iter().any(|method| event["method"] == *method) && !is_page(event);
        Ok(self.events.iter().filter(told).cloned().collect())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = killpg(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// Messages of the browser, as they come.
fn listen(pipe: File) -> Receiver<Value> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let messages = BufReader::new(pipe).split(0).map_while(std::io::Result::ok);
        for message in messages.filter_map(|message| serde_json::from_slice(&message).ok()) {
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    receiver
}
