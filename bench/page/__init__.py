"""The web page before what is large, in a real browser before a real controller."""
