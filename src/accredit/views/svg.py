"""Pictures as SVG text, without a drawing library."""

from __future__ import annotations

import html
from pathlib import Path

from accredit.errors import StoreError
from accredit.views.plain import one_line

__all__ = ["Picture", "attributes", "canvas", "element", "text"]

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


class Picture(str):
    """SVG text that a notebook draws and that can be saved.

    Example:
        >>> Picture("<svg/>")._repr_svg_()
        '<svg/>'
    """

    __slots__ = ()

    def save(self, path: str | Path) -> Path:
        """Write the picture.

        Args:
            path: ends in ``.svg``.

        Raises:
            StoreError: if the file cannot be written.
        """
        target = Path(path)
        try:
            target.write_text(self, encoding="utf-8", newline="\n")
        except OSError as error:
            raise StoreError(
                f"cannot write {target}: {error.strerror}", hint="Give a path in a folder that exists"
            ) from error
        return target

    def _repr_svg_(self) -> str:
        return str(self)


def element(name: str, body: str = "", **values: object) -> str:
    """Return one element; underscores in attribute names become hyphens, None is left out.

    Args:
        name: tag name.
        body: content, already escaped.
        **values: attributes; numbers are written with three decimals at most.

    Example:
        >>> element("rect", x=1.23456, text_anchor="end", fill=None)
        '<rect x="1.235" text-anchor="end"/>'
    """
    tag = f"<{name}{attributes(values)}"
    return f"{tag}>{body}</{name}>" if body else f"{tag}/>"


def attributes(values: dict[str, object]) -> str:
    """Return attributes as text, escaped, each with a space before it."""
    return "".join(
        f' {k.rstrip("_").replace("_", "-")}="{_written(v)}"' for k, v in values.items() if v is not None
    )


def text(x: float, y: float, words: str, **values: object) -> str:
    """Return a text element; the words are rollout text as like as not, so they are made harmless."""
    return element("text", html.escape(one_line(words)) or " ", x=x, y=y, **values)


def canvas(width: float, height: float, title: str, body: str) -> Picture:
    """Return a whole picture on white, with its title for screen readers."""
    named = element("title", html.escape(one_line(title)))
    paper = element("rect", width=width, height=height, fill="#FFFFFF")
    return Picture(
        element(
            "svg",
            named + paper + body,
            xmlns="http://www.w3.org/2000/svg",
            width=width,
            height=height,
            viewBox=f"0 0 {_written(width)} {_written(height)}",
            role="img",
            font_family=FONT,
            font_size=13,
        )
    )


def _written(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return html.escape(str(value))
