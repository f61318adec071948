import { render } from "preact";
import { Frame } from "./ui/frame.tsx";
import { followLinks } from "./ui/router.ts";

followLinks();
const page = document.getElementById("page");
if (page) render(<Frame />, page);
