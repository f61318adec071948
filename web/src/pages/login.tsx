import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ApiError, send } from "../core/api.ts";
import { loginLink } from "../core/route.ts";
import { Command } from "../ui/bits.tsx";
import { useTitle } from "../ui/hooks.ts";

/** Spends the one-use code of the address, which leaves the address at once. */
export function Login(): JSX.Element {
  useTitle("Sign in");
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    const { code, to } = loginLink(location.hash, location.origin);
    history.replaceState(null, "", "/login");
    if (!code) {
      setProblem("This address has no code.");
      return;
    }
    send("/web/login", { code }).then(
      () => location.replace(to),
      (error: unknown) => setProblem(error instanceof ApiError ? error.message : "Signing in failed."),
    );
  }, []);
  return (
    <main class="door">
      <h1>Holdfast</h1>
      {problem === null ? <p role="status">Signing in…</p> : (
        <>
          <p role="alert">{problem}</p>
          <p>To come in, type in a terminal where you use Holdfast:</p>
          <Command line="holdfast web" />
        </>
      )}
    </main>
  );
}
