"""A key goes out of everything that could bring it back, and a receipt says what was searched.

Enters: the keys of a stream's rows, and the settings' relations to other streams. Leaves: a commit without their rows,
a bucket without the files that have them, a receipt with codes of the keys and never the keys. Whatever dies on the
way, the same call again finishes it, and only the last step writes a receipt. Read `forget.py` first.
"""
