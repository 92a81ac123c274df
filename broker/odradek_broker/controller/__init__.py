"""The controller: decides about topics, configurations, brokers and producer ids.

Modules that do no I/O decide (image and request in, records and response out); `service.py`
appends the records to the metadata log, replays them and notifies subscribers.
"""
