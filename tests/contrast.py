"""How well all text of a page in a browser stands out, by WCAG's rule for contrast."""

from __future__ import annotations

from typing import Any

_FIND = """() => {
  const context = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const parse = (colour) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below, opacity = 1) => {
    const share = top[3] * opacity;
    return [0, 1, 2].map((i) => top[i] * share + below[i] * (1 - share)).concat(1);
  };
  const probe = document.body.appendChild(document.createElement("div"));
  probe.style.backgroundColor = "Canvas";
  const canvas = parse(getComputedStyle(probe).backgroundColor);
  probe.remove();
  const chain = (element) => {
    const found = [];
    for (let at = element; at; at = at.parentElement) found.unshift(at);
    return found;
  };
  const linear = (v) => v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4;
  const light = (colour) => [0.2126, 0.7152, 0.0722].reduce((sum, part, i) => sum + part * linear(colour[i]), 0);
  const judge = (element, text) => {
    if (!element.checkVisibility({visibilityProperty: true, opacityProperty: true})) return null;
    if (element.closest("[disabled],option,script,style,noscript,title")) return null;
    const style = getComputedStyle(element);
    let ground = canvas, opacity = 1;
    for (const at of chain(element)) {
      ground = over(parse(getComputedStyle(at).backgroundColor), ground);
      opacity *= Number(getComputedStyle(at).opacity);
    }
    const colour = over(parse(element instanceof SVGElement ? style.fill : style.color), ground, opacity);
    const [a, b] = [light(colour), light(ground)];
    const size = parseFloat(style.fontSize), bold = Number(style.fontWeight) >= 700;
    return {
      text: text.trim().slice(0, 40), contrast: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05),
      least: size >= 24 || (bold && size >= 18.66) ? 3 : 4.5,
    };
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    if (walker.currentNode.data.trim()) found.push(judge(walker.currentNode.parentElement, walker.currentNode.data));
  }
  for (const field of document.querySelectorAll("input:not([type=range],[type=file]),textarea,select")) {
    found.push(judge(field, field.value));
  }
  return found.filter(Boolean);
}"""


def judge_contrast(page: Any) -> list[dict[str, Any]]:
    """The contrast of every visible text with what is behind it, and how much it must have at least."""
    found: list[dict[str, Any]] = page.evaluate(_FIND)
    return found


def find_faint(page: Any, least: int) -> list[dict[str, Any]]:
    """The texts that do not stand out enough, of at least so many."""
    found = judge_contrast(page)
    assert len(found) >= least, found
    return [each for each in found if each["contrast"] < each["least"]]
