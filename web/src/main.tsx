import { render } from "preact";
import { Shell } from "./ui/shell.tsx";
import { followLinks } from "./ui/router.ts";

followLinks();
const page = document.getElementById("page");
if (page) render(<Shell />, page);
