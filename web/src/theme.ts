/** Runs before the first paint: the theme that was chosen here, else what the system prefers. */
try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset["theme"] = chosen;
} catch {
  // Storage may be forbidden; then the system's preference holds.
}
