import { render } from "preact";
import { link } from "./address";
import { api, isReport } from "./api";
import { App } from "./app";
import { comparison } from "./runs";
import "./style.css";

const root = document.getElementById("page");
if (root) {
  root.replaceChildren(); // a report has its text here for readers without scripts
  render(<App />, root);
}

// A report of one run opens at this run, one of several at their comparison.
if (isReport && !location.hash) {
  void api.runs().then(({ runs }) => {
    const [first, ...others] = runs.filter(({ state }) => state !== "damaged").map(({ id }) => id);
    if (first !== undefined) location.replace(others.length ? comparison([first, ...others]) : link(["run", first]));
  });
}
