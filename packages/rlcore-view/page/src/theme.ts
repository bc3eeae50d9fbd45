// Dark or light: as the system has it, unless the reader chose one.
import { useEffect, useState } from "preact/hooks";

const STORED = "rlcore-theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const CHANGED = "rlcore-theme-changed";

function chosen(): string | null {
  try {
    return localStorage.getItem(STORED);
  } catch {
    return null; // a report that is opened as a file may have no storage
  }
}

export function applyTheme(theme: string | null = chosen()): void {
  if (theme === "dark" || theme === "light") document.documentElement.dataset["theme"] = theme;
}

export function isDark(): boolean {
  const theme = document.documentElement.dataset["theme"];
  return theme ? theme === "dark" : system.matches;
}

export function toggleTheme(): void {
  const theme = isDark() ? "light" : "dark";
  applyTheme(theme);
  try {
    localStorage.setItem(STORED, theme);
  } catch {
    // The choice holds until the page is closed.
  }
  dispatchEvent(new Event(CHANGED));
}

/** Whether the page is dark; for what is drawn on a canvas, which has to be drawn anew. */
export function useDark(): boolean {
  const [dark, setDark] = useState(isDark());
  useEffect(() => {
    const changed = () => setDark(isDark());
    addEventListener(CHANGED, changed);
    system.addEventListener("change", changed);
    return () => {
      removeEventListener(CHANGED, changed);
      system.removeEventListener("change", changed);
    };
  }, []);
  return dark;
}
