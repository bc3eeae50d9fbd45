"""The style of a sheet, for phones and wide windows, in light and dark."""

STYLE = """
:root{--page:#f6f7f9;--card:#fff;--ink:#1b1f24;--soft:#5f6b7a;--line:#dfe3e8;--right:#1a7f4b;--right-bg:#e6f5ec;
--wrong:#c0392b;--wrong-bg:#fcebe9;--unscored:#6b7280;--unscored-bg:#eef0f3;--blue:#2f6fb7;--think:#f3f0fa;
--think-ink:#5b4a86;--tool:#f1f5f9}
@media (prefers-color-scheme:dark){:root{--page:#13161a;--card:#1c2026;--ink:#e7eaee;--soft:#98a3b1;--line:#333a43;
--right:#5fd08f;--right-bg:#163524;--wrong:#ff8a7d;--wrong-bg:#42201d;--unscored:#a5adb8;--unscored-bg:#2a3038;
--blue:#7db4f0;--think:#26223a;--think-ink:#bcaeea;--tool:#232930}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1240px;padding:20px 16px 60px;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
h1,h2,h3,h4,p,dl,dd,ul,figure{margin:0;padding:0}
h1{font-size:24px;line-height:1.25;overflow-wrap:anywhere}
header{display:grid;gap:12px;margin-bottom:18px}
.score{display:grid;grid-template-columns:auto 1fr;gap:4px 16px;align-items:center;max-width:560px}
.score b{font-size:40px;line-height:1;font-variant-numeric:tabular-nums}
.score p{color:var(--soft)}
.score svg{grid-column:1/-1;width:100%;height:10px;border-radius:5px}
.track{fill:var(--line)}.range{fill:var(--blue);opacity:.4}.mean{fill:var(--blue)}
dl{display:flex;flex-wrap:wrap;gap:6px 24px}
dt{font-size:12px;color:var(--soft)}
dd{overflow-wrap:anywhere}
nav{position:sticky;top:0;z-index:2;display:flex;flex-wrap:wrap;gap:8px;padding:10px 0;background:var(--page)}
nav input{position:absolute;opacity:0;pointer-events:none}
nav label{padding:5px 13px;border:1px solid var(--line);border-radius:999px;background:var(--card);cursor:pointer}
nav label span{color:var(--soft);font-variant-numeric:tabular-nums}
nav input:checked+label{border-color:var(--blue);box-shadow:inset 0 0 0 1px var(--blue)}
nav input:focus-visible+label{outline:2px solid var(--blue);outline-offset:2px}
label.right{color:var(--right)}label.wrong{color:var(--wrong)}label.unscored{color:var(--unscored)}
body:has(#show-right:checked) section:not(.right),body:has(#show-wrong:checked) section:not(.wrong),
body:has(#show-unscored:checked) section:not(.unscored),
body:has(#show-right:checked) article:not(:has(section.right)),
body:has(#show-wrong:checked) article:not(:has(section.wrong)),
body:has(#show-unscored:checked) article:not(:has(section.unscored)){display:none}
.note{margin:8px 0;color:var(--soft)}
.none{display:none}
body:has(#show-right:checked):not(:has(section.right)) .none,
body:has(#show-wrong:checked):not(:has(section.wrong)) .none,
body:has(#show-unscored:checked):not(:has(section.unscored)) .none{display:block}
main{display:grid;gap:16px}
article{display:grid;gap:14px;padding:16px;border:1px solid var(--line);border-radius:12px;background:var(--card);
min-width:0}
h2{font-size:13px;font-weight:500;color:var(--soft);overflow-wrap:anywhere}
h2 span{font-weight:700;color:var(--ink)}
.task,.episodes{display:grid;gap:12px;align-content:start;min-width:0}
@media (min-width:820px){article{grid-template-columns:minmax(260px,2fr) 3fr;gap:14px 24px}h2{grid-column:1/-1}
.task{position:sticky;top:64px}.task:has(:target){z-index:9}}
.expected{padding:8px 12px;border:1px dashed var(--line);border-radius:8px;color:var(--soft);overflow-wrap:anywhere}
.expected b{color:var(--ink)}
section{padding:12px 14px;border-left:4px solid var(--unscored);border-radius:8px;background:var(--page);min-width:0;
display:grid;gap:10px}
section.right{border-color:var(--right)}section.wrong{border-color:var(--wrong)}
h3{font-size:16px;line-height:1.4;font-weight:400;overflow-wrap:anywhere;white-space:pre-wrap}
.verdict{display:inline-block;margin-right:6px;padding:1px 9px;border-radius:6px;font-size:13px;font-weight:650;
color:var(--unscored);background:var(--unscored-bg)}
.right .verdict{color:var(--right);background:var(--right-bg)}
.wrong .verdict{color:var(--wrong);background:var(--wrong-bg)}
.facts{margin-top:-6px;font-size:12px;color:var(--soft)}
.message{min-width:0}
.assistant>h4,.task .user>h4,.step .user>h4{display:none}
h4,summary{font-size:12px;font-weight:600;color:var(--soft)}
summary{cursor:pointer}
.text{white-space:pre-wrap;overflow-wrap:anywhere;tab-size:4}
.message .text{max-height:28em;overflow-y:auto}
.text+.text,.text+.figures,.figures+.text,details+.text{margin-top:6px}
.think{padding:8px 12px;border-radius:8px;background:var(--think);color:var(--think-ink)}
.think summary{color:inherit}
.think .text{font-size:14px}
.tool{padding:8px 12px;border-radius:8px;background:var(--tool)}
.call{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;color:var(--blue)}
.call::before{content:"→ "}
.code{margin:6px 0 0;padding:8px 12px;border-radius:8px;background:var(--tool);overflow-x:auto;max-height:28em;
font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;tab-size:4}
.error{color:var(--wrong)}
.cut,.empty{color:var(--soft);font-style:italic}
.rewards{display:flex;flex-wrap:wrap;gap:4px 14px;list-style:none;font-size:12px;color:var(--soft)}
.rewards b{color:var(--ink);font-variant-numeric:tabular-nums}
.figures{display:flex;flex-wrap:wrap;gap:10px;align-items:flex-start;margin-top:6px}
.step{display:flow-root;min-width:0}
.step>*+*{margin-top:10px}
.step:has(.turn) .figures{float:left;max-width:50%;margin:0 16px 10px 0}
.step:has(.turn) :is(.text,.think,details){display:flow-root}
figure{max-width:100%}
figure img{display:block;width:auto;height:auto;max-width:100%;max-height:300px;border-radius:8px;
background:#8882;box-shadow:0 0 0 1px var(--line)}
:where(article:has(.turn)) figure img{max-height:440px}
figure.small img{width:192px;image-rendering:pixelated}
figcaption{font-size:11px;color:var(--soft)}
.missing div{display:grid;place-items:center;min-width:140px;min-height:90px;padding:10px;border:1px dashed var(--line);
border-radius:8px;color:var(--soft);font-size:12px}
.open{display:block;position:relative;width:fit-content;max-width:100%;cursor:zoom-in}
.marks{position:absolute;inset:0;width:100%;height:100%;overflow:visible}
.marks *{fill:none;vector-effect:non-scaling-stroke;stroke-linecap:round;stroke-width:2.5px}
.marks .halo{stroke:#fff;stroke-width:5.5px}
.marks .expected{stroke:#12924a}.marks .given{stroke:#e0218a}
.marks rect.expected,.marks rect.given{stroke-dasharray:6 5}
.turn{display:flex;flex-wrap:wrap;gap:2px 16px;font-size:13px;color:var(--soft);overflow-wrap:anywhere}
.turn b{color:var(--ink);font-weight:600}
.turn.right::before{content:"✓";color:var(--right);font-weight:700}
.turn.wrong::before{content:"✗";color:var(--wrong);font-weight:700}
.close{display:none}
figure:target{position:fixed;inset:0;z-index:5;display:grid;place-items:center;padding:16px;background:#000d}
figure:target img{width:auto;height:auto;max-width:96vw;max-height:88vh;object-fit:contain}
figure.small:target img{width:min(88vw,88vh)}
figure:target .open{cursor:default}
figure:target .close{position:absolute;inset:0;display:grid;place-items:end center;padding:14px;color:#fff;
text-decoration:none;cursor:zoom-out}
figure:target figcaption{display:none}
@media print{nav{display:none}article{break-inside:avoid}}
"""
"""CSS. The sheet allows no other style, so elements have classes and no style attributes."""

__all__ = ["STYLE"]
