"""Snowplow's tracker protocol: the short names on the wire, and the columns of its event model they mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Read = Callable[[str], Any]


class Misfit(Exception):
    """A value that is not what its parameter must be."""


def _integer(text: str) -> int:
    if len(text) > 19:
        raise ValueError
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError
    return value


def _flag(text: str) -> bool:
    """Browsers send 1 and 0, other trackers words."""
    if text.lower() in ("1", "true"):
        return True
    if text.lower() in ("0", "false"):
        return False
    raise ValueError


COLUMNS: dict[str, tuple[str, Read]] = {
    "tna": ("name_tracker", str),
    "aid": ("app_id", str),
    "p": ("platform", str),
    "dtm": ("dvce_created_tstamp", _integer),
    "stm": ("dvce_sent_tstamp", _integer),
    "ttm": ("true_tstamp", _integer),
    "tz": ("os_timezone", str),
    "eid": ("event_id", str),
    "tid": ("txn_id", str),
    "tv": ("v_tracker", str),
    "evn": ("event_vendor", str),
    "duid": ("domain_userid", str),
    "nuid": ("network_userid", str),
    "tnuid": ("network_userid", str),
    "uid": ("user_id", str),
    "vid": ("domain_sessionidx", _integer),
    "sid": ("domain_sessionid", str),
    "ip": ("user_ipaddress", str),
    "ua": ("useragent", str),
    "fp": ("user_fingerprint", str),
    "mac": ("mac_address", str),
    "url": ("page_url", str),
    "page": ("page_title", str),
    "refr": ("page_referrer", str),
    "lang": ("br_lang", str),
    "cookie": ("br_cookies", _flag),
    "cd": ("br_colordepth", str),
    "cs": ("doc_charset", str),
    "f_pdf": ("br_features_pdf", _flag),
    "f_qt": ("br_features_quicktime", _flag),
    "f_realp": ("br_features_realplayer", _flag),
    "f_wma": ("br_features_windowsmedia", _flag),
    "f_dir": ("br_features_director", _flag),
    "f_fla": ("br_features_flash", _flag),
    "f_java": ("br_features_java", _flag),
    "f_gears": ("br_features_gears", _flag),
    "f_ag": ("br_features_silverlight", _flag),
    "se_ca": ("se_category", str),
    "se_ac": ("se_action", str),
    "se_la": ("se_label", str),
    "se_pr": ("se_property", str),
    "se_va": ("se_value", _number),
    "tr_id": ("tr_orderid", str),
    "tr_af": ("tr_affiliation", str),
    "tr_tt": ("tr_total", _number),
    "tr_tx": ("tr_tax", _number),
    "tr_sh": ("tr_shipping", _number),
    "tr_ci": ("tr_city", str),
    "tr_st": ("tr_state", str),
    "tr_co": ("tr_country", str),
    "tr_cu": ("tr_currency", str),
    "ti_id": ("ti_orderid", str),
    "ti_sk": ("ti_sku", str),
    "ti_nm": ("ti_name", str),
    "ti_ca": ("ti_category", str),
    "ti_pr": ("ti_price", _number),
    "ti_qu": ("ti_quantity", _integer),
    "ti_cu": ("ti_currency", str),
    "pp_mix": ("pp_xoffset_min", _integer),
    "pp_max": ("pp_xoffset_max", _integer),
    "pp_miy": ("pp_yoffset_min", _integer),
    "pp_may": ("pp_yoffset_max", _integer),
}
SIZES = {
    "res": ("dvce_screenwidth", "dvce_screenheight"),
    "vp": ("br_viewwidth", "br_viewheight"),
    "ds": ("doc_width", "doc_height"),
}
"""`1920x1080` → two columns."""
EVENTS = {
    "pv": "page_view",
    "pp": "page_ping",
    "se": "struct",
    "ue": "unstruct",
    "tr": "transaction",
    "ti": "transaction_item",
}


OWN = (
    {column for column, _ in COLUMNS.values()}
    | {column for pair in SIZES.values() for column in pair}
    | {"event", "contexts", "unstruct_event", "collector_tstamp", "derived_tstamp"}
)
"""Columns that only their parameters may fill."""


def column_of(name: str, value: str) -> tuple[str, Any]:
    """A parameter's column and value; one nobody knows stays as it is."""
    known = COLUMNS.get(name)
    if known is None:
        if name in OWN:
            raise Misfit(f"has a parameter `{name}`, which is the name of a column")
        return name, value
    try:
        return known[0], known[1](value)
    except ValueError:
        raise Misfit(f"has `{name}` = `{value[:80]}`, which is no {known[0]}") from None


def size_of(name: str, value: str) -> dict[str, int]:
    """
    >>> size_of("res", "1920x1080")
    {'dvce_screenwidth': 1920, 'dvce_screenheight': 1080}
    """
    width, _, height = value.partition("x")
    try:
        return {SIZES[name][0]: _integer(width), SIZES[name][1]: _integer(height)}
    except ValueError:
        raise Misfit(f"has `{name}` = `{value[:80]}`, which is no size") from None
