import { render } from "preact";
import { link, parse } from "./address";
import { api, isReport } from "./api";
import { App } from "./app";
import "./style.css";

const root = document.getElementById("page");
if (root) {
  root.replaceChildren(); // a report has its text here for readers without scripts
  render(<App />, root);
}

// A report of one run opens at this run.
if (isReport && !parse(location.hash).path.length) {
  void api.runs().then(({ runs: [first, ...others] }) => {
    if (first && !others.length) location.replace(link(["run", first.id]));
  });
}
