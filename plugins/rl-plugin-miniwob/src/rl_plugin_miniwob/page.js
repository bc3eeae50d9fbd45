// What a page of MiniWoB++ is asked, evaluated in the page after it was opened.
(() => {
  const WIDTH = 160, HEIGHT = 210, MOST_ELEMENTS = 150, LONGEST = 80, MOST_OPTIONS = 40;
  const OWN = "#query, #reward-display, #sync-task-cover, #click-canvas";
  const CONTROLS = "button, a, input, select, textarea, [role=button]";
  const SHAPES = "circle, ellipse, rect, polygon, path, line, text, image, img, canvas";
  const pause = () => new Promise((resolve) => setTimeout(resolve));
  const short = (text) => String(text ?? "").replace(/\s+/g, " ").trim().slice(0, LONGEST);

  async function start(seed) {
    if (document.readyState !== "complete") await new Promise((resolve) => addEventListener("load", resolve));
    await pause();
    // Typed text can become part of the page. From here on, it runs no code and loads nothing.
    const policy = document.createElement("meta");
    policy.httpEquiv = "Content-Security-Policy";
    policy.content = "script-src 'none'; connect-src 'none'; frame-src 'none'; object-src 'none'";
    document.head.append(policy);
    window.alert = window.confirm = window.prompt = () => null;
    if (window.jQuery) jQuery.fx.off = true;
    // The longest delay of a timer: the time that a model needs must not end the episode.
    Object.defineProperty(core, "EPISODE_MAX_TIME", { value: 2 ** 31 - 1, writable: false });
    Math.seedrandom(seed);
    core.startEpisodeReal();
    for (let tries = 0; !WOB_TASK_READY && tries < 500; tries++) await new Promise((r) => setTimeout(r, 10));
    return WOB_TASK_READY;
  }

  async function state() {
    await pause();
    const said = core.getUtterance();
    return {
      done: WOB_DONE_GLOBAL,
      reward: Number(WOB_RAW_REWARD_GLOBAL),
      task: String(said.utterance ?? said).slice(0, 2000),
    };
  }

  // A point where a click reaches the element: its centre, or another point of a grid over it.
  function reachable(element) {
    const box = element.getBoundingClientRect();
    const grid = [0.5, 0.3, 0.7, 0.1, 0.9];
    for (const v of grid)
      for (const u of grid) {
        const x = box.left + u * box.width, y = box.top + v * box.height;
        if (x < 0 || y < 0 || x >= WIDTH || y >= HEIGHT) continue;
        const hit = document.elementFromPoint(x, y);
        if (hit && (hit === element || element.contains(hit))) return [x / WIDTH, y / HEIGHT];
      }
    return null;
  }

  function ownText(element) {
    return [...element.childNodes].filter((node) => node instanceof Text).map((node) => node.data).join(" ");
  }

  function described(element) {
    const control = element.matches(CONTROLS), shape = element.matches(SHAPES);
    if (!control && element.parentElement?.closest(CONTROLS)) return null;
    const style = getComputedStyle(element), pointer = style.cursor === "pointer";
    // Tiles of a board, colours to choose from: without a text, only the style shows what they are.
    const tile = !element.firstElementChild && (element.id || element.classList.length > 0);
    const field = element.matches("input, textarea");
    const box = element.matches("[type=checkbox], [type=radio]");
    const chosen = element instanceof HTMLSelectElement ? (element.selectedOptions[0]?.text ?? "") : null;
    const text = short(field ? (box ? "" : element.value) : chosen ?? (control ? element.innerText : ownText(element)));
    if (!text && !control && !shape && !pointer && !tile) return null;
    const notes = [];
    if (!text || shape || (pointer && !control)) {
      if (element.id) notes.push("#" + short(element.id));
      notes.push(...[...element.classList].filter((one) => !one.startsWith("ui-")).map(short));
    }
    if (!text && !control && style.backgroundColor !== "rgba(0, 0, 0, 0)") notes.push("colour " + style.backgroundColor);
    if (shape && element.getAttribute("fill")) notes.push("fill " + short(element.getAttribute("fill")));
    if (box && element.checked) notes.push("checked");
    if (element === document.activeElement && control) notes.push("selected");
    if (element instanceof HTMLSelectElement)
      notes.push("options: " + [...element.options].slice(0, MOST_OPTIONS).map((one) => short(one.text)).join(", "));
    const kind = element instanceof HTMLInputElement ? element.type : element.tagName.toLowerCase();
    return { kind: short(kind), text, notes: notes.slice(0, 8) };
  }

  function elements() {
    const found = [];
    for (const element of document.body.querySelectorAll("*")) {
      if (found.length === MOST_ELEMENTS) break;
      if (element.closest(OWN) || element.matches("script, style, option, br")) continue;
      const one = described(element), point = one && reachable(element);
      if (point) found.push({ ...one, position: point });
    }
    return found;
  }

  function replaceText() {
    const field = document.activeElement;
    if (field && field.matches("input, textarea") && field.select) field.select();
  }

  function select(x, y, value) {
    const list = document.elementFromPoint(x, y)?.closest("select");
    const option = [...(list?.options ?? [])].find((one) => short(one.text) === short(value));
    if (!option) return;
    option.selected = true;
    for (const name of ["input", "change"]) list.dispatchEvent(new Event(name, { bubbles: true }));
  }

  window.rlcore = { start, state, elements, replaceText, select };
})();
